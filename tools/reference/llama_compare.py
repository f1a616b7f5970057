#!/usr/bin/env python3
"""Compares a GGUF file's logits in llama.cpp with golden answers, or with another logits file.

    llama_compare.py MODEL.gguf GOLDEN --package DIR --libraries DIR [--write PREFIX]

GOLDEN is a folder with golden.bin and golden.json (tools/reference/golden.py). --package is the
folder that holds the Python package `llama_cpp` (its ctypes declarations are used), --libraries
the one with libllama.so of the same release. Prints for each prompt the largest difference and
the spread of the reference's logits, apart for the positions that see everything and for those
where the sparse attention chooses; exits with 1 when a difference of the first kind passes
--tolerance times the spread. The second kind differs by design: llama.cpp picks single tokens by
their block's score, so that unless the tail is full a part of one more block is seen, and equal
scores fall as they may. --write keeps the logits as PREFIX.<prompt>.f32, float32 [n, vocabulary].
"""

import argparse
import json
import os
import pathlib
import re
import sys

import numpy as np

PROMPTS = ("one", "short", "eos", "long")


class Golden:
    def __init__(self, folder):
        self.index = json.loads((folder / "golden.json").read_text())
        self.data = (folder / "golden.bin").read_bytes()

    def array(self, key):
        entry = self.index[key]
        count = int(np.prod(entry["shape"]))
        dtype = np.float32 if entry["dtype"] == "f32" else np.int32
        return np.frombuffer(self.data, dtype, count, entry["offset"]).reshape(entry["shape"])


class Llama:
    """A model in llama.cpp with a cache in F32, so that rounding is the weights' alone."""

    def __init__(self, package, libraries, path, context):
        os.environ["LLAMA_CPP_LIB_PATH"] = str(libraries)
        sys.path.insert(0, str(package))
        import llama_cpp.llama_cpp as api

        self.api = api
        api.llama_backend_init()
        parameters = api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            sys.exit(f"llama.cpp does not load {path}")
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        settings = api.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = context
        settings.n_threads = settings.n_threads_batch = 2
        settings.type_k = settings.type_v = 0  # GGML_TYPE_F32
        settings.flash_attn_type = 0  # off
        self.settings = settings

    def number(self, key, fallback):
        """The largest number of a metadata value, which may be a list."""
        text = self.api.ctypes.create_string_buffer(1 << 16)
        self.api.llama_model_meta_val_str(self.model, key.encode(), text, len(text))
        numbers = re.findall(r"[0-9]+", text.value.decode())
        return max(map(int, numbers)) if numbers else fallback

    def logits(self, ids):
        """Logits of every position of a sequence read at once."""
        api = self.api
        context = api.llama_init_from_model(self.model, self.settings)
        if not context:
            sys.exit("llama.cpp makes no context for this model")
        batch = api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = int(token)
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        status = api.llama_decode(context, batch)
        if status != 0:
            sys.exit(f"llama_decode returned {status}")
        rows = []
        for i in range(len(ids)):
            row = api.llama_get_logits_ith(context, i)
            rows.append(np.ctypeslib.as_array(row, (self.vocabulary,)).copy())
        api.llama_batch_free(batch)
        api.llama_free(context)
        return np.stack(rows)


def report(prompt, kind, want, have, rows):
    rows = list(rows)
    if not rows:
        return
    difference = np.abs(have - want)[rows]
    picks = int((have.argmax(1) == want.argmax(1))[rows].sum())
    print(f"{prompt}: {kind}: {len(rows)} positions, largest difference {difference.max():.2e}, "
          f"mean {difference.mean():.2e}, spread {want.std():.2e}, same first choice {picks}, "
          f"exact to 1e-4 {int((difference.max(1) < 1e-4).sum())}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("golden", type=pathlib.Path)
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--libraries", type=pathlib.Path, required=True)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--write")
    arguments = parser.parse_args()

    golden = Golden(arguments.golden)
    llama = Llama(arguments.package, arguments.libraries, arguments.model, 512)
    budget = llama.number("qwen4exp.attention.indexer.top_k", 1 << 30)
    ratio = llama.number("qwen4exp.attention.compress_ratios", 4)
    failed = False
    for prompt in PROMPTS:
        want = golden.array(f"{prompt}.logits")
        have = llama.logits(golden.array(f"{prompt}.ids"))
        if have.shape != want.shape:
            sys.exit(f"{prompt}: logits of shape {have.shape}, wanted {want.shape}")
        if arguments.write:
            have.astype("<f4").tofile(f"{arguments.write}.{prompt}.f32")
        # llama.cpp runs layers of ratio 0 dense, which the golden answers are not past the budget.
        all_seen = min(len(want), budget + max(ratio, 1) - 1)
        rest = range(all_seen, len(want))
        full_tail = [p for p in rest if ratio and (p + 1) % ratio == ratio - 1]
        report(prompt, "all seen", want, have, range(all_seen))
        report(prompt, "chosen, full tail", want, have, full_tail)
        report(prompt, "chosen", want, have, rest)
        difference = np.abs(have - want)[:all_seen].max()
        failed |= bool(difference > arguments.tolerance * want.std())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
