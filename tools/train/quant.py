"""ggml's Q4_0 and Q8_0 in torch: straight-through rounding while training, codes for transport,
dequantized values.

The Q4_0 scale is kept to bfloat16's 8 bits of mantissa: every scale and every extreme value then
survives a BF16 checkpoint, and quantizing that checkpoint gives back these same codes.
"""

import torch

BLOCK = 32


def q4_0_parts(w):
    """(codes 0..15 [.., n/32, 32], scales [.., n/32, 1]) along the last dimension, as ggml's
    reference does.
    """
    blocks = w.detach().float().unflatten(-1, (-1, BLOCK))
    extreme = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    scale = (extreme / -8).bfloat16().float()
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
    return (blocks * inverse + 8.5).floor().clamp(0, 15), scale


def q4_0(w):
    codes, scale = q4_0_parts(w)
    return ((codes - 8) * scale).flatten(-2).to(w.dtype)


def q8_0(w):
    blocks = w.detach().float().unflatten(-1, (-1, BLOCK))
    scale = (blocks.abs().amax(-1, keepdim=True) / 127).half().float()
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
    return ((blocks * inverse).round() * scale).flatten(-2).to(w.dtype)


def straight_through(w, amount):
    """w where amount is 0, Q4_0(w) where it is 1; gradients pass as if nothing was rounded."""
    if (
        w.shape[-1] % BLOCK or not w.requires_grad
    ):  # rows that hold no whole blocks; weights that are not trained
        return w
    return w + amount * (q4_0(w) - w).detach()


def is_q4(name):
    """Which tensors the shipped file keeps in Q4_0: routed experts and the n-gram table."""
    return ".experts." in name or "ngram_embedding" in name


def is_q8(name, tensor):
    """Every other matrix whose rows hold whole blocks; routers, norms and convolutions stay F32."""
    routers = ("mlp.gate.weight", "shared_expert_gate.weight")
    return (
        not is_q4(name)
        and tensor.dim() == 2
        and tensor.shape[-1] % BLOCK == 0
        and not name.endswith(routers)
    )


def pack_q4(w):
    """(two codes a byte, bfloat16 scales): 0.5625 bytes a weight, exact for weights that q4_0
    produced.
    """
    codes, scale = q4_0_parts(w)
    codes = codes.to(torch.uint8).flatten()
    return codes[0::2] | (codes[1::2] << 4), scale.bfloat16().flatten()


def unpack_q4(packed, scale, shape):
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten().float().view(-1, BLOCK)
    return ((codes - 8) * scale.float().view(-1, 1)).view(shape)
