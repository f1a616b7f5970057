"""Weights in parts (what a training run leaves in --out) to a checkpoint folder in the public
layout.

python export.py --parts DIR --data DIR --out DIR
"""

import argparse
import json
from pathlib import Path

import torch

import checkpoint
import ship
from config import Config
from model import Model
from quant import is_q4, q4_0


def requantizes_exactly(folder, parts):
    """The BF16 checkpoint must give back the Q4_0 values that were trained."""
    model = checkpoint.load(folder)
    trained = Model(model.config)
    ship.read_parts(trained, parts)
    pairs = zip(model.named_parameters(), trained.parameters())
    return all(torch.equal(q4_0(p), t) for (name, p), t in pairs if is_q4(name))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", required=True)
    parser.add_argument(
        "--data", type=Path, required=True, help="packed data, for the vocabulary's size"
    )
    parser.add_argument("--out", required=True)
    parser.add_argument(
        "--config", type=json.loads, default={}, help="the overrides that the run was given"
    )
    args = parser.parse_args()
    vocab = json.loads((args.data / "pack.json").read_text())["vocab"]
    model = Model(Config(**{**vocab, **args.config}))
    ship.read_parts(model, args.parts)
    checkpoint.save(model, args.out)
    print("requantizes exactly:", requantizes_exactly(args.out, args.parts))
