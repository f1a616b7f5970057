"""The DFlash2 draft in torch: a block of rows that guesses the tokens after an anchor, from the
target's features of everything before it. Parameter names are those of the public checkpoints.

All that is batched over anchors: B sequences, A blocks in each, b rows in a block.
"""

import dataclasses
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from model import Linear


@dataclasses.dataclass
class Draft:
    """The shape of a draft; taps are target layers counted from 0."""

    vocab_size: int
    mask_token_id: int
    num_target_layers: int
    target_layer_ids: tuple
    hidden_size: int = 256
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 768
    sliding_window: int = 512
    block_size: int = 8
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    selector_rank: int = 64
    selector_top_k: int = 16
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e7
    max_position_embeddings: int = 2048


NESTED = (
    "block_size mask_token_id target_layer_ids conv_kernel_size conv_group_size "
    "selector_rank selector_top_k"
).split()


def to_public(d):
    """config.json as the public drafts have it."""
    flat = dataclasses.asdict(d)
    nested = {key: flat.pop(key) for key in NESTED}
    nested["target_layer_ids"] = list(nested["target_layer_ids"])
    rope = {"rope_type": "default", "rope_theta": d.rope_theta}
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "attention_bias": False,
        "is_causal": False,
        "use_sliding_window": True,
        "layer_types": ["sliding_attention"] * d.num_hidden_layers,
        **flat,
        "rope_parameters": rope,
        "block_size": d.block_size,
        "dflash_config": nested,
    }


def from_public(path):
    raw = json.loads(Path(path).read_text())
    raw = {**raw, **raw.get("rope_parameters", {}), **raw["dflash_config"]}
    known = {f.name for f in dataclasses.fields(Draft)}
    values = {k: v for k, v in raw.items() if k in known}
    values["target_layer_ids"] = tuple(values["target_layer_ids"])
    return Draft(**values)


class RawNorm(nn.Module):
    """RMS norm whose weight is the factor itself."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


class BlockConv(nn.Module):
    """Two convolutions over the rows of a block whose taps depend on the receiving row."""

    def __init__(self, d):
        super().__init__()
        self.taps, self.group = d.conv_kernel_size, d.conv_group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, self.taps, d.hidden_size))
        groups = d.hidden_size // self.group
        self.kernel_projection = Linear(d.hidden_size, 2 * self.taps * groups)

    def kernels(self, a):
        """[..., b, side, tap, hidden] for the normed rows a [..., b, hidden]."""
        delta = self.kernel_projection(a).unflatten(-1, (2, self.taps, -1))
        return self.base_kernel.to(a.dtype) + delta.repeat_interleave(self.group, -1)

    def apply(self, kernels, side, x):
        """Row i gets the sum over taps t <= i of kernel[t] * x[i - t]."""
        rows = x.shape[-2]
        out = kernels[..., side, 0, :] * x
        for tap in range(1, min(self.taps, rows)):
            earlier = F.pad(x[..., : rows - tap, :], (0, 0, tap, 0))
            out = out + kernels[..., side, tap, :] * earlier
        return out


def rope(x, position, theta):
    """x [..., heads, D] rotated at `position` [...]: halves are paired, all of D."""
    half = x.shape[-1] // 2
    power = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angle = position.float().unsqueeze(-1) * theta**-power
    cos, sin = (t.unsqueeze(-2).to(x.dtype) for t in (angle.cos(), angle.sin()))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.heads, self.kv, self.dim = d.num_attention_heads, d.num_key_value_heads, d.head_dim
        self.theta = d.rope_theta
        self.q_proj = Linear(d.hidden_size, self.heads * self.dim)
        self.k_proj = Linear(d.hidden_size, self.kv * self.dim)
        self.v_proj = Linear(d.hidden_size, self.kv * self.dim)
        self.o_proj = Linear(self.heads * self.dim, d.hidden_size)
        self.q_norm = RawNorm(self.dim, d.rms_norm_eps)
        self.k_norm = RawNorm(self.dim, d.rms_norm_eps)

    def keys(self, x, position):
        """k, v [B, heads, rows, D] of x [B, rows, hidden]; each KV head for its query heads."""
        k = rope(self.k_norm(self.k_proj(x).unflatten(-1, (self.kv, -1))), position, self.theta)
        v = self.v_proj(x).unflatten(-1, (self.kv, -1))
        k, v = (t.repeat_interleave(self.heads // self.kv, 2).transpose(1, 2) for t in (k, v))
        return k, v

    def forward(self, x, position, context, mask):
        """x [B, rows, hidden], all blocks in a row; context (k, v); mask as `attention_mask`."""
        q = rope(self.q_norm(self.q_proj(x).unflatten(-1, (self.heads, -1))), position, self.theta)
        own_k, own_v = self.keys(x, position)
        k, v = torch.cat([context[0], own_k], 2), torch.cat([context[1], own_v], 2)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask)
        return self.o_proj(o.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate_proj = Linear(d.hidden_size, d.intermediate_size)
        self.up_proj = Linear(d.hidden_size, d.intermediate_size)
        self.down_proj = Linear(d.intermediate_size, d.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.input_layernorm = RawNorm(d.hidden_size, d.rms_norm_eps)
        self.self_attn = Attention(d)
        self.attention_conv = BlockConv(d)
        self.post_attention_layernorm = RawNorm(d.hidden_size, d.rms_norm_eps)
        self.mlp = MLP(d)
        self.mlp_conv = BlockConv(d)

    def forward(self, h, position, c, c_position, mask):
        """h [B,A,b,hidden] float32; c [B,T,hidden] fused context."""
        blocks = h.shape[1:3]
        a = self.input_layernorm(h).to(c.dtype)
        kernels = self.attention_conv.kernels(a)
        u = self.attention_conv.apply(kernels, 0, a).flatten(1, 2)
        context = self.self_attn.keys(c, c_position)
        o = self.self_attn(u, position.flatten(1, 2), context, mask).unflatten(1, blocks)
        h = h + self.attention_conv.apply(kernels, 1, o)
        a = self.post_attention_layernorm(h).to(c.dtype)
        kernels = self.mlp_conv.kernels(a)
        m = self.mlp(self.mlp_conv.apply(kernels, 0, a))
        return h + self.mlp_conv.apply(kernels, 1, m)


class Selector(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.hidden_projection = Linear(d.hidden_size, d.selector_rank)
        self.predecessor_codebook = nn.Parameter(torch.empty(d.vocab_size, d.selector_rank))
        self.successor_codebook = nn.Parameter(torch.zeros(d.vocab_size, d.selector_rank))

    def scores(self, z, unary, before, candidates):
        """unary and result [..., K] for z [..., hidden], the tokens before [...], candidates
        [..., K].
        """
        left = F.embedding(before, self.predecessor_codebook) * self.hidden_projection(z).float()
        right = F.embedding(candidates, self.successor_codebook)
        return unary + (left.unsqueeze(-2) * right).sum(-1)


def attention_mask(anchors, rows, length, window, sizes=None):
    """Bool [B, 1, A*b, T + A*b]: context before the anchor and inside each row's window, and the
    whole of the row's own block. `sizes` [B,A] are smaller blocks: rows past one are not there.
    """
    count = anchors.shape[1]
    position = (anchors.unsqueeze(-1) + torch.arange(rows, device=anchors.device)).flatten(1)
    block = torch.arange(count * rows, device=anchors.device) // rows
    cell = torch.arange(length, device=anchors.device)
    first = anchors.repeat_interleave(rows, 1).unsqueeze(-1)
    context = (cell < first) & (position.unsqueeze(-1) - cell < window)
    own = (block.unsqueeze(-1) == block).expand(len(anchors), -1, -1)
    if sizes is not None:
        row = torch.arange(count * rows, device=anchors.device) % rows
        own = own & (row < sizes.repeat_interleave(rows, 1)).unsqueeze(1)
    return torch.cat([context, own], -1).unsqueeze(1)


class DFlash2(nn.Module):
    """`embedding` and `head` [vocabulary, hidden] are the target's and are not trained."""

    def __init__(self, d, embedding, head):
        super().__init__()
        self.config = d
        self.fc = Linear(len(d.target_layer_ids) * d.hidden_size, d.hidden_size)
        self.hidden_norm = RawNorm(d.hidden_size, d.rms_norm_eps)
        self.layers = nn.ModuleList([DraftLayer(d) for _ in range(d.num_hidden_layers)])
        self.norm = RawNorm(d.hidden_size, d.rms_norm_eps)
        self.candidate_selector = Selector(d)
        self.dtype = torch.float32
        self.register_buffer("embedding", embedding.detach().float(), persistent=False)
        self.register_buffer("head", head.detach().float(), persistent=False)

    def forward(self, features, anchors, tokens, rows, sizes=None):
        """features [B,T,taps*hidden] of positions 0..T-1, anchors [B,A] positions and their tokens
        [B,A] -> z [B,A,rows,hidden] after the final norm. With `sizes` [B,A] the first sizes rows
        of a block are those of a block of that size, and the others mean nothing.
        """
        d = self.config
        limit = torch.finfo(torch.float16).max
        features = features.float().nan_to_num(0.0, limit, -limit).to(self.dtype)
        c = self.hidden_norm(self.fc(features))
        ids = torch.full((*tokens.shape, rows), d.mask_token_id, device=tokens.device)
        ids[..., 0] = tokens
        h = F.embedding(ids, self.embedding)
        position = anchors.unsqueeze(-1) + torch.arange(rows, device=anchors.device)
        cells = torch.arange(c.shape[1], device=c.device).expand(len(c), -1)
        mask = attention_mask(anchors, rows, c.shape[1], d.sliding_window, sizes)
        for layer in self.layers:
            h = layer(h, position, c, cells, mask)
        return self.norm(h)

    def unary(self, z):
        return F.linear(z.to(self.dtype), self.head.to(self.dtype)).float()

    @torch.no_grad()
    def walk(self, features, anchors, tokens, rows=None):
        """The greedy draft of each anchor: path, confidence [B,A,rows-1], candidates and their
        scores [B,A,rows-1,K], and z.
        """
        rows = rows or self.config.block_size
        z = self(features, anchors, tokens, rows)
        values, candidates = self.unary(z[:, :, 1:]).topk(self.config.selector_top_k, -1)
        before, out = tokens, []
        for i in range(rows - 1):
            scores = self.candidate_selector.scores(
                z[:, :, i + 1], values[:, :, i], before, candidates[:, :, i]
            )
            best = scores.argmax(-1, keepdim=True)
            before = candidates[:, :, i].gather(-1, best).squeeze(-1)
            out.append((before, scores.softmax(-1).gather(-1, best).squeeze(-1), scores))
        path, confidence, scores = (torch.stack(t, 2) for t in zip(*out))
        return path, confidence, candidates, scores, z

    @torch.no_grad()
    def initialize(self, seed=0):
        """The selector and the second taps start as nothing."""
        g = torch.Generator().manual_seed(seed)
        depth = (2 * self.config.num_hidden_layers) ** -0.5
        for name, p in self.named_parameters():
            if name.endswith("base_kernel"):
                p.zero_()
                p[:, 0] = 1
            elif "kernel_projection" in name or "successor" in name:
                p.zero_()
            elif "predecessor" in name:
                p.copy_(torch.randn(p.shape, generator=g) * 0.02)
            elif p.dim() == 2:
                scale = p.shape[1] ** -0.5 * (depth if "o_proj" in name or "down_" in name else 1)
                p.copy_(torch.randn(p.shape, generator=g) * scale)


def save(model, folder):
    """The public layout, BF16."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(to_public(model.config), indent=2) + "\n")
    state = {k: v.detach().cpu().to(torch.bfloat16) for k, v in model.state_dict().items()}
    save_file(
        {k: v.contiguous() for k, v in state.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def load(folder, embedding, head):
    folder = Path(folder)
    model = DFlash2(from_public(folder / "config.json"), embedding, head)
    state = {}
    for file in sorted(folder.glob("model*.safetensors")):
        state.update(load_file(file))
    state = {k.removeprefix("model."): v.float() for k, v in state.items()}
    for side in ("predecessor", "successor"):
        name = f"candidate_selector.{side}_codebook"
        if name + ".weight" in state:
            state[name] = state.pop(name + ".weight")
    model.load_state_dict(state)
    return model
