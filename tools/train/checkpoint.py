"""The public checkpoint layout: reading (fused experts or one by one) and writing (fused, BF16)."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import gguf_target
from config import from_public, to_public
from model import Model

PREFIX = "model.language_model."


def public_tensors(model):
    """Public names -> BF16 tensors (hash constants I64)."""
    out = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().cpu()
        tensor = tensor if tensor.dtype == torch.int64 else tensor.to(torch.bfloat16)
        full = name if name.startswith(("mtp.", "lm_head.")) else PREFIX + name
        if full.endswith("ngram_embedding.weight"):
            for i, part in enumerate(tensor.chunk(model.config.split_ngram_parts)):
                out[full.replace("weight", f"shard_{i}.weight")] = part.contiguous()
        else:
            out[full] = tensor.contiguous()
    return out


def save(model, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(to_public(model.config), indent=2) + "\n")
    save_file(public_tensors(model), folder / "model.safetensors", metadata={"format": "pt"})


def _joined(tensors, config):
    """Undoes the layouts a public checkpoint may use: n-gram shards, experts one by one."""
    out, shards, experts = {}, {}, {}
    for name, tensor in tensors.items():
        name = name.removeprefix(PREFIX).removeprefix("model.")
        if "ngram_embedding.shard_" in name:
            base, _, rest = name.partition("shard_")
            shards.setdefault(base + "weight", {})[int(rest.split(".")[0])] = tensor
        elif ".experts." in name and name.endswith(".weight"):
            base, _, rest = name.partition(".experts.")
            number, kind, _ = rest.split(".")
            experts.setdefault(base + ".experts.", {})[int(number), kind] = tensor
        else:
            out[name] = tensor
    for name, parts in shards.items():
        out[name] = torch.cat([parts[i] for i in range(len(parts))])
    for base, parts in experts.items():
        each = range(config.num_experts)
        out[base + "gate_up_proj"] = torch.stack(
            [torch.cat([parts[i, "gate_proj"], parts[i, "up_proj"]]) for i in each]
        )
        out[base + "down_proj"] = torch.stack([parts[i, "down_proj"] for i in each])
    return out


def load(folder):
    """The model of a folder (or of a GGUF file), float32, frozen, in eval mode. The hash constants
    in the file must be the derived ones.
    """
    folder = Path(folder)
    if folder.suffix == ".gguf":
        return gguf_target.load(folder)
    config = from_public(folder / "config.json")
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors.update(load_file(file))
    state = _joined(tensors, config)
    model = Model(config)
    for name, buffer in model.named_buffers():
        if name in state and not torch.equal(buffer, state[name]):
            raise ValueError(
                f"{name}: the file says {state[name].tolist()}, the config gives {buffer.tolist()}"
            )
    model.load_state_dict({k: v if v.dtype == torch.int64 else v.float() for k, v in state.items()})
    return model.eval().requires_grad_(False)
