"""Strata dumps tokens and features of prompts and of its own text: several processes side by side.

python dump.py --strata BIN --gguf FILE --data DIR --out DUMPS --seconds 240

Each process appends to files of its own; called again it adds to them. FOLDER/wN.jsonl notes where
each sequence is, how many of its tokens were given, and which are held out.
"""

import argparse
import json
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

import texts

HELD = 1 / 12  # share of the sequences that come from held-out documents


def jobs(data, length, seed, modes=texts.MODES, some=64):
    """Endless (prompt tokens, tokens to generate, temperature, penalty, kind, held out)."""
    rng = np.random.default_rng(seed)
    while True:
        rows, prompts = texts.train_prompts(data, some, length, int(rng.integers(1 << 30)))
        held = texts.heldout_prompts(data, 4, length, int(rng.integers(1 << 30)))
        mode, temperature, penalty = texts.settings(some, rng, modes)
        for i, row in enumerate(rows):
            if rng.random() < HELD:
                n = int(rng.integers(len(held[0])))
                given = int(held[1][n])
                yield held[0][n][:given], length - given, 0.0, 1.1, held[2][n], True
            name = modes[mode[i]][0]
            given = length - 1 if name == "forced" else int(prompts[i])
            yield row[:given], length - given, temperature[i], penalty[i], name, False


def file_jobs(folder, tokenizer, kind, length, seed, prompt=96):
    """The same of text files of a kind of their own: one in five is held out."""
    from tokenizers import Tokenizer

    encode = Tokenizer.from_file(str(tokenizer)).encode
    files = sorted(p for p in Path(folder).rglob("*") if p.is_file())
    ids = [encode(p.read_text(errors="replace")).ids for p in files]
    rng, prompt = np.random.default_rng(seed), min(prompt, length // 2)
    while True:
        n = int(rng.integers(len(ids)))
        start = int(rng.integers(max(1, len(ids[n]) - prompt)))
        given = np.array(ids[n][start : start + prompt], dtype=np.int64)
        if len(given) > 8:
            yield given, length - len(given), 0.0, 1.1, kind, n % 5 == 0


class Worker:
    """Runs jobs one after another into PREFIX.*, and notes them."""

    def __init__(self, args, number):
        self.args = args
        self.prefix = Path(args.out) / f"w{number}"
        # A later call goes on with other prompts: how many sequences are there already is the seed.
        done = len(self.notes()) if self.note_file().exists() else 0
        self.seed = args.seed * 1000003 + number * 1009 + done

    def note_file(self):
        return self.prefix.with_suffix(".jsonl")

    def notes(self):
        return self.note_file().read_text().splitlines()

    def rows(self):
        index = self.prefix.with_suffix(".idx")
        return index.stat().st_size // 8 if index.exists() else 0

    def command(self, job):
        tokens, count, temperature, penalty, _, _ = job
        prompt = self.prefix.with_suffix(".prompt")
        prompt.write_text(",".join(str(t) for t in tokens))
        out = [self.args.strata, "generate", "-m", self.args.gguf, "--tokens", f"@{prompt}"]
        out += ["-n", str(count), "--temp", f"{temperature:.3f}", "--top-k", "0", "--top-p", "1"]
        out += ["--repeat-penalty", str(penalty), "--seed", str(self.seed), "--ignore-eos"]
        out += ["--draft", self.args.drafter, "-t", str(self.args.threads)]
        out += ["--dump-features", str(self.prefix)]
        out += ["--dump-layers", self.args.layers] if self.args.layers else []
        return out + (["--dump-residual"] if self.args.residual else [])

    def run(self, deadline):
        a = self.args
        if a.files:
            source = file_jobs(a.files, a.tokenizer, a.kind, a.length, self.seed)
        else:
            source = jobs(a.data, a.length, self.seed)
        while time.time() < deadline:
            job, row = next(source), self.rows()
            left = max(1.0, deadline - time.time())
            try:
                done = subprocess.run(
                    self.command(job), capture_output=True, text=True, timeout=left
                )
            except subprocess.TimeoutExpired:
                done = None
            if done and done.returncode:
                raise RuntimeError(f"{self.prefix}: {done.stderr.strip()}")
            self.seed += 1
            note = {"row": row, "rows": self.rows() - row, "prompt": len(job[0])}
            with open(self.note_file(), "a") as f:
                f.write(json.dumps({**note, "kind": job[4], "held": job[5]}) + "\n")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strata", required=True, help="the program")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--data", help="packed data: prompts come from it")
    parser.add_argument("--files", help="or: a folder of text files, all of one --kind")
    parser.add_argument("--tokenizer", help="tokenizer.json, for --files")
    parser.add_argument("--kind", default="files")
    parser.add_argument("--out", required=True)
    parser.add_argument("--layers", help="as --dump-layers; the default is the program's")
    parser.add_argument(
        "--residual", action="store_true", help="also what an MTP layer learns from"
    )
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--drafter", default="none", help="the text is the same; it may be faster")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if bool(args.data) == bool(args.files):
        parser.error("one of --data and --files is wanted")
    return args


def main(argv=None):
    args = parse(argv)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    began = time.time()
    workers = [Worker(args, n) for n in range(args.processes)]
    before, failed = sum(w.rows() for w in workers), []

    def guarded(worker):
        try:
            worker.run(began + args.seconds)
        except Exception as e:  # one that fails must not end the others
            failed.append(e)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows, seconds = sum(w.rows() for w in workers) - before, time.time() - began
    print(f"{rows} rows in {seconds:.0f} s, {rows / seconds:.0f} a second")
    if failed:
        raise failed[0]


if __name__ == "__main__":
    main()
