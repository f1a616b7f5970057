"""The gated delta rule, chunked: exact in real arithmetic, and fast because only the state at chunk
starts is a scan.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU path needs no triton
    triton = None

if triton is not None:

    @triton.jit
    def _inverse_kernel(a_ptr, t_ptr, C: tl.constexpr):
        """One program inverts one I + A by forward substitution, in registers."""
        base = tl.program_id(0).to(tl.int64) * C * C
        r = tl.arange(0, C)
        t = (r[:, None] == r[None, :]).to(tl.float32)
        for row in range(1, C):
            a = tl.load(a_ptr + base + row * C + r)
            fresh = (r == row).to(tl.float32) - tl.sum(a[:, None] * t, 0)
            t = tl.where(r[:, None] == row, fresh[None, :], t)
        tl.store(t_ptr + base + r[:, None] * C + r[None, :], t)


@torch.library.custom_op("strata::unit_lower_inverse", mutates_args=())
def unit_lower_inverse(a: torch.Tensor) -> torch.Tensor:
    """(I + a)^-1 for strictly lower a [..., C, C]. An opaque op: torch.compile leaves it whole."""
    if a.is_cuda and triton is not None:
        a = a.contiguous()
        out = torch.empty_like(a)
        _inverse_kernel[(a.numel() // a.shape[-1] ** 2,)](a, out, C=a.shape[-1], num_warps=4)
        return out
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand_as(a)
    return torch.linalg.solve_triangular(a, eye, upper=False, unitriangular=True).contiguous()


@unit_lower_inverse.register_fake
def _(a):
    return torch.empty_like(a, memory_format=torch.contiguous_format)


def _save(ctx, inputs, output):
    ctx.save_for_backward(output)


def _backward(ctx, grad):
    (t,) = ctx.saved_tensors
    return -(t.mT @ grad @ t.mT).tril(-1)


unit_lower_inverse.register_autograd(_backward, setup_context=_save)


def _chunks(x, count, size):
    """[B, T, heads, d] -> [B, heads, count, size, d]"""
    return x.unflatten(1, (count, size)).permute(0, 3, 1, 2, 4)


def gated_delta(q, k, v, g, beta, chunk=64):
    """q, k [B,T,G,D], v [B,T,V,D] in the order of value heads (head h reads key head h // (V/G));
    g, beta [B,T,V].
    """
    batch, length, groups, _ = q.shape
    heads = v.shape[2]
    pad = -length % chunk
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, 0, 0, pad)) for x in (g, beta))
    count = (length + pad) // chunk
    q, k = (_chunks(x, count, chunk).unsqueeze(2) for x in (q, k))  # [B,G,1,N,C,D]
    v = _chunks(v, count, chunk).unflatten(1, (groups, heads // groups))
    g, beta = (
        _chunks(x.unsqueeze(-1), count, chunk).unflatten(1, (groups, heads // groups))
        for x in (g, beta)
    )

    total = g.cumsum(-2)  # [B,G,R,N,C,1], log decay since the chunk's start
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    decay = (total - total.mT).masked_fill(later, float("-inf")).exp()
    inverse = unit_lower_inverse((beta * (k @ k.mT) * decay).tril(-1).contiguous())
    values = inverse @ (beta * v)
    reads = inverse @ (beta * total.exp() * k)
    last = total[..., -1:, :]
    keys = (last - total).exp() * k

    # S' = exp(last) S + keys^T (values - reads S): linear in S, so both factors come out of the
    # scan.
    step = keys.mT @ values
    shrink = -(keys.mT @ reads) + last.exp() * torch.eye(
        k.shape[-1], device=q.device, dtype=q.dtype
    )
    state = torch.zeros_like(step[..., 0, :, :])
    states = []
    for n in range(count):
        states.append(state)
        if n + 1 < count:
            state = shrink[..., n, :, :] @ state + step[..., n, :, :]
    states = torch.stack(states, -3)
    fresh = values - reads @ states
    out = (total.exp() * q) @ states + ((q @ k.mT) * decay) @ fresh
    return out.flatten(1, 2).permute(0, 2, 3, 1, 4).flatten(1, 2)[:, :length]
