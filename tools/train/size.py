"""What the quantized file will weigh: routed experts and n-gram table Q4_0, other matrices Q8_0,
the rest F32.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

import torch

from config import Config, from_public
from model import Model
from quant import is_q4, is_q8


def kind(name):
    for key in (
        "mtp.",
        "ngram_embedding",
        ".experts.",
        "embed_tokens",
        "lm_head",
        "hyper_connection",
        "ple.",
        "linear_attn",
        "self_attn",
    ):
        if key in name:
            return key.strip(".")
    return "other"


def weigh(config):
    """(bytes per class, parameters per class)"""
    with torch.device("meta"):
        model = Model(config)
    size, count = Counter(), Counter()
    for name, p in model.named_parameters():
        per = 0.5625 if is_q4(name) else 1.0625 if is_q8(name, p) else 4
        size[kind(name)] += int(p.numel() * per)
        count[kind(name)] += p.numel()
    return size, count


def tokenizer_bytes(folder):
    """The token, type and merge arrays of the metadata: strings carry an 8-byte length."""
    model = json.loads((Path(folder) / "tokenizer.json").read_text())["model"]
    tokens = sum(len(t.encode()) + 12 for t in model["vocab"])
    return tokens + sum(
        len((" ".join(m) if isinstance(m, list) else m).encode()) + 8 for m in model["merges"]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--config", help="config.json; without it, the defaults of config.py with --vocab"
    )
    parser.add_argument("--vocab", type=int, default=6656)
    parser.add_argument("--tokenizer", help="folder with tokenizer.json")
    args = parser.parse_args()
    config = from_public(args.config) if args.config else Config(args.vocab, args.vocab - 6)
    size, count = weigh(config)
    if args.tokenizer:
        size["tokenizer"] = tokenizer_bytes(args.tokenizer)
    for name, n in size.most_common():
        print(f"{name:18} {count[name]:12,} params {n:12,} bytes")
    print(f"{'total':18} {sum(count.values()):12,} params {sum(size.values()):12,} bytes")
