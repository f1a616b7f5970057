"""Splits every routed expert of a trained checkpoint into two of half the width, same function.

The hidden units of an expert are independent of each other, so its first and its second half are
experts of their own. Both halves take their expert's router row: they tie, so twice as many
active experts choose the same pairs, each half with half the share, which a down matrix times two
makes up for (exactly: a power of two). Training goes on from there with `train.py --parts` so
that the halves part.

  python split_experts.py --from CHECKPOINT --to CHECKPOINT [--noise 0.02]
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def halves(gate_up, down):
    """([E, 2F, H], [E, H, F]) -> ([2E, F, H], [2E, H, F/2]), halves of an expert side by side."""
    experts, width, hidden = gate_up.shape[0], gate_up.shape[1] // 2, gate_up.shape[2]
    parts = gate_up.view(experts, 2, 2, width // 2, hidden)  # expert, gate or up, half, row
    gate_up = parts.transpose(1, 2).reshape(2 * experts, width, hidden)
    down = (
        down.view(experts, hidden, 2, width // 2)
        .transpose(1, 2)
        .reshape(2 * experts, hidden, width // 2)
    )
    return gate_up.contiguous(), (2 * down).contiguous()


def split(tensors, noise, seed):
    torch.manual_seed(seed)
    out = dict(tensors)
    for name in tensors:
        if name.endswith(".experts.gate_up_proj"):
            base = name[: -len("experts.gate_up_proj")]
            down = base + "experts.down_proj"
            out[name], out[down] = halves(tensors[name], tensors[down])
            router = tensors[base + "gate.weight"].repeat_interleave(2, 0).float()
            scale = noise * router.std(1, keepdim=True)
            out[base + "gate.weight"] = (router + scale * torch.randn_like(router)).to(
                tensors[name].dtype
            )
    return out


def split_config(config):
    text = config.get("text_config", config)
    text["num_experts"] *= 2
    text["num_experts_per_tok"] *= 2
    text["moe_intermediate_size"] //= 2
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument(
        "--noise", type=float, default=0.0, help="of router rows, as a share of their deviation"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source, to = Path(args.source), Path(args.to)
    to.mkdir(parents=True, exist_ok=True)
    tensors = load_file(source / "model.safetensors")
    save_file(
        split(tensors, args.noise, args.seed), to / "model.safetensors", metadata={"format": "pt"}
    )
    config = split_config(json.loads((source / "config.json").read_text()))
    (to / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (to / name).write_bytes((source / name).read_bytes())


if __name__ == "__main__":
    main()
