"""Compares this torch model with reference answers: a folder with target/ and golden.npz (see the
README).
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from checkpoint import load


@torch.no_grad()
def check(folder):
    """Largest differences over all prompts, as shares of the spread of the expected values."""
    model, golden, worst = load(folder / "target"), np.load(folder / "golden.npz"), {}

    def compare(key, got):
        want = torch.from_numpy(golden[key])
        error = ((got - want).abs().max() / want.std()).item()
        worst[key.split(".")[1]] = max(worst.get(key.split(".")[1], 0), error)

    for prompt in sorted({k.split(".")[0] for k in golden.files if k.endswith(".ids")}):
        ids, means = torch.from_numpy(golden[f"{prompt}.ids"]).long()[None], []
        r, _, _ = model.trunk(ids, means)
        compare(f"{prompt}.logits", model.logits(r)[0])
        compare(f"{prompt}.hc_mean", torch.stack([m[0] for m in means]))
        if f"{prompt}.mtp_logits" in golden.files:
            out, _, _ = model.mtp_step(r[:, :-1], ids[:, 1:])
            compare(f"{prompt}.mtp_logits", model.mtp_logits(out)[0])
            first = torch.from_numpy(golden[f"{prompt}.greedy"]).long()[:1]
            chain, cells = ids[0, 1:].tolist() + first.tolist(), r
            guesses = []
            for _ in range(3):
                out, _, _ = model.mtp_step(cells, torch.tensor([chain]))
                guesses.append(model.mtp_logits(out)[0, -1].argmax().item())
                cells, chain = torch.cat([cells, out[:, -1:]], 1), chain + guesses[-1:]
            worst["mtp_chain_wrong"] = worst.get("mtp_chain_wrong", 0) + int(
                guesses != golden[f"{prompt}.mtp_chain"].tolist()
            )
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        print(folder.name, check(folder))
