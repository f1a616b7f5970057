"""Tokenizes the documents and the questions built from them into train.xz, heldout.xz and
pack.json.

Two bytes a token, documents in random order, each followed by <|endoftext|>. Held out: 2 % of the
files, chosen by the hash of their path, and the questions built from them; pages of well-known
commands always stay in training.
"""

import argparse
import hashlib
import json
import lzma
import random
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from questions import KNOWN, SMALL_TALK, chat, turns

HELDOUT = 0.02


def held_out(document):
    stem = Path(document["path"]).name.split(".")[0]
    if document["kind"] == "manual" and stem in KNOWN:
        return False
    return int(hashlib.sha1(document["path"].encode()).hexdigest()[:8], 16) < HELDOUT * 2**32


def conversations(pairs, rng):
    """Groups of one to three turns; small talk comes in between."""
    pairs = list(pairs) + [
        (rng.choice(q), a) for q, a in SMALL_TALK for _ in range(max(1, len(pairs) // 400))
    ]
    rng.shuffle(pairs)
    while pairs:
        n = rng.choice([1, 1, 1, 2, 3])
        yield chat(pairs[:n])
        pairs = pairs[n:]


def read(path, rng):
    """Two lists of (kind, text): training, held out."""
    train, held, asked = [], [], ([], [])
    with open(path) as f:
        for line in f:
            document = json.loads(line)
            out = held_out(document)
            (held if out else train).append((document["kind"], document["text"]))
            asked[out].extend(turns(document, rng))
    train += [("chat", text) for text in conversations(asked[0], rng)]
    held += [("chat", text) for text in conversations(asked[1], rng)]
    rng.shuffle(train)
    rng.shuffle(held)
    return train, held


def encode(tokenizer, documents, batch=2000):
    """(ids, start of each document, its kind, its UTF-8 bytes)"""
    end = tokenizer.token_to_id("<|endoftext|>")
    parts, starts, kinds, sizes, at = [], [], [], [], 0
    for i in range(0, len(documents), batch):
        some = documents[i : i + batch]
        for (kind, text), done in zip(some, tokenizer.encode_batch_fast([t for _, t in some])):
            starts.append(at)
            kinds.append(kind)
            sizes.append(len(text.encode()))
            parts.append(np.array(done.ids + [end], dtype=np.uint16))
            at += len(parts[-1])
    return np.concatenate(parts), np.array(starts), kinds, sizes


def write(path, ids):
    with lzma.open(path, "wb", preset=2) as f:
        f.write(ids.tobytes())


def load(folder):
    """(train ids, held-out ids, pack.json)"""
    folder = Path(folder)
    arrays = [
        np.frombuffer(lzma.open(folder / f"{n}.xz").read(), dtype=np.uint16)
        for n in ("train", "heldout")
    ]
    return (*arrays, json.loads((folder / "pack.json").read_text()))


def pack(documents, tokenizer, out, seed=0):
    out.mkdir(parents=True, exist_ok=True)
    info = {
        "vocab": {
            "vocab_size": tokenizer.get_vocab_size(),
            "eos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        }
    }
    for name, part in zip(("train", "heldout"), read(documents, random.Random(seed))):
        ids, starts, kinds, sizes = encode(tokenizer, part)
        write(out / f"{name}.xz", ids)
        ends = np.append(starts[1:], len(ids))
        info[name] = {
            "documents": len(starts),
            "tokens": len(ids),
            "bytes": sum(sizes),
            "kinds": {
                k: {
                    "tokens": int(sum(e - s for s, e, x in zip(starts, ends, kinds) if x == k)),
                    "bytes": sum(n for n, x in zip(sizes, kinds) if x == k),
                }
                for k in sorted(set(kinds))
            },
        }
        info[name]["chat_starts"] = [int(s) for s, k in zip(starts, kinds) if k == "chat"]
        if name == "heldout":
            info[name]["spans"] = [
                [int(s), int(e), k, n] for s, e, k, n in zip(starts, ends, kinds, sizes)
            ]
    (out / "pack.json").write_text(json.dumps(info))
    return info


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    done = pack(
        args.work / "documents.jsonl",
        Tokenizer.from_file(str(args.tokenizer / "tokenizer.json")),
        args.out,
    )
    for name in ("train", "heldout"):
        print(name, {k: v for k, v in done[name].items() if k not in ("chat_starts", "spans")})
