"""Weights in small files: parts below a size limit, for machines that return only small files.

Exact for a model whose experts and table were trained in Q4_0 (codes and scales) and else BF16.
With exact=False those tensors travel as 8-bit blocks: good enough to resume from, not for a
release.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from quant import BLOCK, is_q4, pack_q4, unpack_q4


def _pack(name, tensor, exact):
    if not is_q4(name):
        return {name: tensor.to(torch.bfloat16)}
    if exact:
        codes, scales = pack_q4(tensor)
        return {name + ":codes": codes, name + ":scales": scales}
    blocks = tensor.float().view(-1, BLOCK)
    scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return {name + ":int8": (blocks / scale).round().to(torch.int8), name + ":scale8": scale.half()}


def write_parts(model, folder, exact, limit=15_500_000):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    part, size, number = {}, 0, 0
    for name, p in model.named_parameters():
        for key, tensor in _pack(name, p.detach().cpu(), exact).items():
            weight = tensor.numel() * tensor.element_size()
            if size + weight > limit:
                save_file(part, folder / f"part{number}.safetensors")
                part, size, number = {}, 0, number + 1
            part[key], size = tensor.contiguous(), size + weight + 200
    save_file(part, folder / f"part{number}.safetensors")


def read_parts(model, folder):
    """Fills the model's parameters from the parts."""
    tensors = {}
    for file in sorted(Path(folder).glob("part*.safetensors")):
        tensors.update(load_file(file))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name in tensors:
                value = tensors[name].float()
            elif name + ":codes" in tensors:
                value = unpack_q4(tensors[name + ":codes"], tensors[name + ":scales"], p.shape)
            else:
                value = (tensors[name + ":int8"].float() * tensors[name + ":scale8"].float()).view(
                    p.shape
                )
            p.copy_(value)
