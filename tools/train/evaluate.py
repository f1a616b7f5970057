"""Held-out bits per byte, ablations, MTP acceptance and sample texts of a checkpoint folder.
Float32, no compiled code.

python evaluate.py --model DIR --data DIR --windows 32
"""

import argparse
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import checkpoint
import pack
from questions import chat
from quant import is_q4, is_q8, q4_0, q8_0

PROMPTS = ["def ", "import os\n\n", "NAME\n       ", "The following options"]
QUESTIONS = [
    "what does grep do?",
    "what does ls do?",
    "what is tar?",
    "explain git commit",
    "how do I use ssh?",
    "what does os.path.join do?",
    "hello",
    "who are you?",
    "what does the mmap system call do?",
]


def windows_of(data, length, count):
    """(ids [n, length+3], bytes that their predicted tokens stand for): every k-th window of the
    held-out text.
    """
    _, ids, info = pack.load(data)
    sizes = np.zeros(len(ids))
    for start, end, _, size in info["heldout"]["spans"]:
        sizes[start:end] = size / (
            end - start
        )  # the document's bytes, spread evenly over its tokens
    total = (len(ids) - 4) // length
    picked = np.arange(0, total, max(1, total // count))[:count]
    rows = np.stack([ids[i * length : (i + 1) * length + 3] for i in picked]).astype(np.int64)
    return torch.from_numpy(rows), sum(
        sizes[i * length + 1 : (i + 1) * length + 1].sum() for i in picked
    )


@torch.no_grad()
def score(model, rows, size, batch=8):
    """Bits per byte of the trunk, loss per token, and how often the MTP layer's first guess is the
    trunk's choice.
    """
    length, nats, agree, seen = rows.shape[1] - 3, 0.0, 0, 0
    for part in rows.split(batch):
        r, _, _ = model.trunk(part[:, :length])
        logits = model.logits(r)
        nats += F.cross_entropy(
            logits.flatten(0, 1), part[:, 1 : length + 1].flatten(), reduction="sum"
        ).item()
        out, _, _ = model.mtp_step(r[:, :-1], part[:, 1:length])
        agree += (model.mtp_logits(out).argmax(-1) == logits[:, 1:].argmax(-1)).sum().item()
        seen += out.shape[0] * out.shape[1]
    return {
        "bits_per_byte": round(nats / math.log(2) / size, 4),
        "nats_per_token": round(nats / rows.shape[0] / length, 4),
        "mtp_agrees": round(agree / seen, 4),
    }


@torch.no_grad()
def acceptance(model, rows, depth=3, keep=(253, 510)):
    """P(the first k chained guesses all equal the trunk's own greedy text), k = 1..depth, at some
    held-out positions.
    """
    hits, tried = [0] * depth, 0
    for n in keep:
        ids = rows[:, :n]
        cells, _, _ = model.trunk(ids)
        greedy = []
        text = ids
        for _ in range(depth + 1):
            r, _, _ = model.trunk(text)
            greedy.append(model.logits(r[:, -1:]).argmax(-1))
            text = torch.cat([text, greedy[-1]], 1)
        following, good = torch.cat([ids[:, 1:], greedy[0]], 1), torch.ones(
            len(rows), 1, dtype=torch.bool
        )
        for k in range(depth):
            out, _, _ = model.mtp_step(cells, following)
            guess = model.mtp_logits(out[:, -1:]).argmax(-1)
            good &= guess == greedy[k + 1]
            hits[k] += good.sum().item()
            cells, following = torch.cat([cells, out[:, -1:]], 1), torch.cat([following, guess], 1)
        tried += len(rows)
    return {"accepted_at_least": [round(h / tried, 4) for h in hits], "samples": tried}


@torch.no_grad()
def generate(model, ids, count, stop=()):
    for _ in range(count):
        r, _, _ = model.trunk(torch.tensor([ids]))
        ids = ids + [model.logits(r[:, -1:]).argmax().item()]
        if ids[-1] in stop:
            break
    return ids


def samples(model, tokenizer, count=60):
    stop = [tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>")]
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        yield prompt, tokenizer.decode(
            generate(model, ids, count, stop)[len(ids) :], skip_special_tokens=False
        )
    for question in QUESTIONS:
        text = chat([(question, "")]).removesuffix("<|im_end|>\n")
        ids = tokenizer.encode(text).ids
        yield question, tokenizer.decode(generate(model, ids, count, stop)[len(ids) :])


@torch.no_grad()
def quantize(model):
    """In place: the rounding of the shipped file."""
    for name, p in model.named_parameters():
        if is_q4(name):
            p.copy_(q4_0(p))
        elif is_q8(name, p):
            p.copy_(q8_0(p))


def report(args):
    model = checkpoint.load(args.model)
    tokenizer = Tokenizer.from_file(f"{args.model}/tokenizer.json")

    def say(what, value):
        print(json.dumps({what: value}, ensure_ascii=False), flush=True)

    if "samples" in args.parts:
        for prompt, text in samples(model, tokenizer):
            say(prompt, text)
    rows, size = windows_of(args.data, args.length, args.windows)
    say("windows", {"count": len(rows), "length": args.length, "bytes": int(size)})
    if "bpb" in args.parts:
        say("bf16", score(model, rows, size))
    if "acceptance" in args.parts:
        say("mtp_chain", acceptance(model, rows))
    if "ablations" in args.parts:
        model.dense.fill_(True)
        say("dense attention", score(model, rows, size))
        model.dense.fill_(False)
        tables = [p for n, p in model.named_parameters() if "ngram_embedding" in n]
        saved = [t.detach().clone() for t in tables]
        for t in tables:
            t.data.zero_()
        say("n-gram table zeroed", score(model, rows, size))
        for t, s in zip(tables, saved):
            t.data.copy_(s)
    if "quantized" in args.parts:
        quantize(model)
        say("q4_0 experts and table, q8_0 rest", score(model, rows, size))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--parts", default="samples,bpb,quantized,ablations,acceptance")
    began = time.time()
    report(parser.parse_args())
    print(f"{time.time() - began:.0f} s")
