"""Sparse attention with a learned block index, its rotary embedding, and the loss that teaches the
index.
"""

import torch
import torch.nn.functional as F
from torch import nn


def rope_tables(c, length, device):
    """(cos, sin) [T, rotary/2] in float32."""
    inverse = c.rope_theta ** (
        -torch.arange(0, c.rotary_dim, 2, device=device, dtype=torch.float64) / c.rotary_dim
    )
    angle = torch.arange(length, device=device, dtype=torch.float64).unsqueeze(-1) * inverse
    return angle.cos().float(), angle.sin().float()


def rotate(x, rope):
    """Rotates the first dimensions of x [B,T,heads,D]; halves are paired, the rest is untouched."""
    cos, sin = (t.unsqueeze(1).to(x.dtype) for t in rope)
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class HeadNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(size)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * (1 + self.weight)).to(x.dtype)


class Projection(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class Indexer(nn.Module):
    """Scores blocks of tokens for each query. Its input is detached: the index loss trains it."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.dim, self.ratio = (
            c.indexer_n_heads,
            c.indexer_head_dim,
            c.indexer_compress_ratio,
        )
        self.index_qk_proj = Projection(c.hidden_size, (self.heads + 1) * self.dim)
        self.q_layernorm = HeadNorm(self.dim, c.rms_norm_eps)
        self.k_layernorm = HeadNorm(self.dim, c.rms_norm_eps)

    def forward(self, x, rope):
        """[B,T,blocks], float32; the last, unfinished block is left out."""
        blocks = x.shape[1] // self.ratio
        both = self.index_qk_proj(x.detach()).float().unflatten(-1, (self.heads + 1, -1))
        q = rotate(self.q_layernorm(both[:, :, : self.heads]), rope)
        k = both[:, : blocks * self.ratio, self.heads].unflatten(1, (blocks, self.ratio)).mean(2)
        starts = tuple(t[: blocks * self.ratio : self.ratio] for t in rope)
        k = rotate(self.k_layernorm(k).unsqueeze(2), starts).squeeze(2)
        return torch.relu(torch.einsum("bthd,bnd->bhtn", q, k)).sum(1)


class SparseAttention(nn.Module):
    index_rows = 0  # sequences of a batch that carry the index loss; 0 outside training

    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.ratio, self.keep = c.indexer_compress_ratio, c.keep_blocks
        self.q_proj = Projection(c.hidden_size, self.heads * self.dim * 2)
        self.k_proj = Projection(c.hidden_size, self.kv * self.dim)
        self.v_proj = Projection(c.hidden_size, self.kv * self.dim)
        self.o_proj = Projection(self.heads * self.dim, c.hidden_size)
        self.q_norm = HeadNorm(self.dim, c.rms_norm_eps)
        self.k_norm = HeadNorm(self.dim, c.rms_norm_eps)
        self.indexer = Indexer(c)

    def select(self, scores, visible):
        """Bool [B,T,blocks]: the best `keep` complete blocks of each row; equal scores go to the
        lower block.
        """
        complete = torch.arange(scores.shape[-1], device=scores.device) < visible.unsqueeze(-1)
        if scores.shape[-1] <= self.keep:
            return complete.expand(scores.shape)
        masked = scores.detach().masked_fill(~complete, float("-inf"))
        if self.training:  # ties do not matter here and topk is faster
            best = masked.topk(self.keep, -1).indices
        else:
            best = masked.sort(dim=-1, descending=True, stable=True).indices[..., : self.keep]
        return torch.zeros_like(masked, dtype=torch.bool).scatter(-1, best, True) & complete

    def forward(self, x, rope, dense):
        length = x.shape[1]
        q, gate = self.q_proj(x).unflatten(-1, (self.heads, -1)).chunk(2, -1)
        k = self.k_proj(x).unflatten(-1, (self.kv, -1))
        v = self.v_proj(x).unflatten(-1, (self.kv, -1))
        q, k = rotate(self.q_norm(q), rope), rotate(self.k_norm(k), rope)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))

        position = torch.arange(length, device=x.device)
        visible = (position + 1) // self.ratio
        scores = self.indexer(x, rope)
        chosen = self.select(scores, visible)
        tokens = F.pad(chosen.repeat_interleave(self.ratio, -1), (0, length % self.ratio))
        tail = position >= (visible * self.ratio).unsqueeze(-1)
        causal = position <= position.unsqueeze(-1)
        mask = ((tokens | tail | dense) & causal).unsqueeze(1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        o = o.transpose(1, 2) * torch.sigmoid(gate)
        n = self.index_rows
        loss = (
            self.index_loss(q[:n], k[:n], scores[:n], visible, causal)
            if n
            else scores.new_zeros(())
        )
        return self.o_proj(o.flatten(-2)), loss

    def index_loss(self, q, k, scores, visible, causal):
        """KL from what dense attention gives each complete block (heads averaged) to the softmax of
        the block scores.
        """
        blocks = scores.shape[-1]
        complete = torch.arange(blocks, device=q.device) < visible.unsqueeze(-1)
        with torch.no_grad():
            logits = (q @ k.mT).float() * self.dim**-0.5
            mass = (
                logits.masked_fill(~causal, float("-inf"))
                .softmax(-1)
                .mean(1)[..., : blocks * self.ratio]
            )
            mass = mass.unflatten(-1, (blocks, self.ratio)).sum(-1) * complete
            mass = mass / mass.sum(-1, keepdim=True).clamp_min(1e-9)
        guess = (scores * self.indexer.dim**-0.5).masked_fill(~complete, -1e4).log_softmax(-1)
        return (mass * (mass.clamp_min(1e-9).log() - guess) * complete).sum(-1).mean()
