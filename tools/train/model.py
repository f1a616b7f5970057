"""The architecture in plain torch, trainable. Parameter names are those of the public checkpoints,
so a state dict is one.

Weights are float32 masters, cast to the activations' type where they are used; statistics,
softmaxes, routing and the delta rule are float32.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from attention import SparseAttention, rope_tables
from config import hash_constants
from gdn import gated_delta
from quant import straight_through


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class Norm(nn.Module):
    """RMS norm with weight (1 + w), over groups of the last dimension."""

    def __init__(self, size, eps, group=None):
        super().__init__()
        self.weight, self.eps, self.group = nn.Parameter(torch.zeros(size)), eps, group or size

    def forward(self, x):
        y = x.float().unflatten(-1, (-1, self.group))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y.flatten(-2) * (1 + self.weight)).to(x.dtype)


def causal_conv(x, weight, dilation=1):
    """Depthwise convolution of x [B,T,C] with weight [C,1,K], as K shifted products: the compiler
    fuses them.
    """
    taps, length = weight.shape[-1], x.shape[1]
    padded = F.pad(x, (0, 0, (taps - 1) * dilation, 0))
    w = weight.to(x.dtype)
    return sum(padded[:, j * dilation : j * dilation + length] * w[:, 0, j] for j in range(taps))


class Depthwise(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, taps))


class HyperConnection(nn.Module):
    """Reads a block's input out of the streams and says how much of its output goes to each."""

    def __init__(self, c, inject=True):
        super().__init__()
        wide = c.hc_count * c.hidden_size
        self.count = c.hc_count
        self.hc_norm = Norm(wide, c.rms_norm_eps, c.hidden_size)
        self.input_mix_weight_down = Linear(wide, c.hc_lowrank)
        self.input_mix_weight_up = Linear(c.hc_lowrank, wide)
        if inject:
            self.block_inject_weight = Linear(wide, c.hc_count)

    def forward(self, r):
        x = self.hc_norm(r)
        gate = torch.sigmoid(
            self.input_mix_weight_up(F.silu(self.input_mix_weight_down(x) / self.count))
        )
        mixed = (gate * x).unflatten(-1, (self.count, -1)).mean(-2)
        if not hasattr(self, "block_inject_weight"):
            return mixed
        return mixed, 2 * torch.sigmoid(self.block_inject_weight(x) / self.count)


def write(r, y, inject):
    return r + (inject.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2)


class LinearAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.groups, self.heads = c.linear_num_key_heads, c.linear_num_value_heads
        self.dim, self.eps = c.linear_value_head_dim, c.rms_norm_eps
        keys, values = self.groups * c.linear_key_head_dim, self.heads * self.dim
        self.split = [keys, keys, values]
        self.in_proj_qkv = Linear(c.hidden_size, sum(self.split))
        self.in_proj_z = Linear(c.hidden_size, values)
        self.in_proj_b = Linear(c.hidden_size, self.heads)
        self.in_proj_a = Linear(c.hidden_size, self.heads)
        self.conv1d = Depthwise(sum(self.split), c.linear_conv_kernel_dim)
        self.A_log = nn.Parameter(torch.empty(self.heads))
        self.dt_bias = nn.Parameter(torch.empty(self.heads))
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.dim))
        self.out_proj = Linear(values, c.hidden_size)

    def forward(self, x):
        mixed = F.silu(causal_conv(self.in_proj_qkv(x), self.conv1d.weight)).float()
        q, k, v = mixed.split(self.split, -1)
        q, k = (t.unflatten(-1, (self.groups, -1)) for t in (q, k))
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) / math.sqrt(q.shape[-1])
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        o = gated_delta(q, k, v.unflatten(-1, (self.heads, -1)), g, beta)
        o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + self.eps) * self.norm.weight
        o = o.flatten(-2) * torch.sigmoid(self.in_proj_z(x).float())
        return self.out_proj(o.to(x.dtype))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up_proj = nn.Parameter(
            torch.empty(c.num_experts, 2 * c.moe_intermediate_size, c.hidden_size)
        )
        self.down_proj = nn.Parameter(
            torch.empty(c.num_experts, c.hidden_size, c.moe_intermediate_size)
        )

    def forward(self, x, weights, quantized):
        """Every expert on every token, unchosen ones with weight 0: at this size two full GEMMs
        beat a gather.
        """
        count, hidden, inner = self.down_proj.shape
        up = straight_through(self.gate_up_proj, quantized).to(x.dtype).view(-1, hidden)
        down = (
            straight_through(self.down_proj, quantized)
            .to(x.dtype)
            .transpose(1, 2)
            .reshape(-1, hidden)
        )
        gate, up = F.linear(x, up).unflatten(-1, (count, 2, inner)).unbind(-2)
        h = F.silu(gate) * up * weights.unsqueeze(-1).to(x.dtype)
        return h.flatten(-2) @ down


class SharedExpert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = Linear(c.hidden_size, c.shared_expert_intermediate_size)
        self.up_proj = Linear(c.hidden_size, c.shared_expert_intermediate_size)
        self.down_proj = Linear(c.shared_expert_intermediate_size, c.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top = c.num_experts_per_tok
        self.gate = Linear(c.hidden_size, c.num_experts)
        self.experts = Experts(c)
        self.shared_expert = SharedExpert(c)
        self.shared_expert_gate = Linear(c.hidden_size, 1)

    def forward(self, x, quantized):
        p = self.gate(x.float()).softmax(-1)
        best, index = p.topk(self.top, -1)
        chosen = torch.zeros_like(p).scatter(-1, index, 1.0)
        weights = p * chosen / best.sum(-1, keepdim=True)
        balance = p.shape[-1] * (chosen.mean((0, 1)).detach() / self.top * p.mean((0, 1))).sum()
        y = self.experts(x, weights, quantized)
        return y + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x), balance


class NgramEmbedding(nn.Module):
    def __init__(self, c):
        super().__init__()
        multipliers, sizes, offsets, rows = hash_constants(c)
        self.eos, self.per = c.eos_token_id, c.heads_per_ngram
        for name, values in (
            ("layer_multipliers", multipliers),
            ("ngram_heads_vocab_sizes", sizes),
            ("ngram_heads_offsets", offsets),
        ):
            self.register_buffer(name, torch.tensor(values))
        self.ngram_embedding = nn.Module()
        self.ngram_embedding.weight = nn.Parameter(
            torch.empty(rows, c.ple_embed_dim // c.ngram_heads)
        )

    def rows(self, ids):
        """Table rows [B,T,heads]. Going back, a missing or end token turns itself and all before it
        into end tokens.
        """
        mixed, cut, out = (
            ids * self.layer_multipliers[0],
            torch.zeros_like(ids, dtype=torch.bool),
            [],
        )
        for back in range(1, len(self.layer_multipliers)):
            earlier = F.pad(ids, (back, 0), value=self.eos)[:, : ids.shape[1]]
            cut = cut | (earlier == self.eos)
            mixed = mixed ^ (torch.where(cut, self.eos, earlier) * self.layer_multipliers[back])
            part = slice((back - 1) * self.per, back * self.per)
            out.append(
                mixed.unsqueeze(-1) % self.ngram_heads_vocab_sizes[part]
                + self.ngram_heads_offsets[part]
            )
        return torch.cat(out, -1)

    def forward(self, rows, quantized, dtype):
        return (
            F.embedding(rows, straight_through(self.ngram_embedding.weight, quantized))
            .flatten(-2)
            .to(dtype)
        )


class PLE(nn.Module):
    def __init__(self, c):
        super().__init__()
        wide = c.hc_count * c.hidden_size
        self.count, self.dilation, self.scale = c.hc_count, c.ngram_size, c.hidden_size**-0.5
        self.ple_embedding = NgramEmbedding(c)
        self.key_proj = Linear(c.ple_embed_dim, wide)
        self.value_proj = Linear(c.ple_embed_dim, c.hidden_size)
        self.norm_key = Norm(wide, c.rms_norm_eps, c.hidden_size)
        self.norm_query = Norm(wide, c.rms_norm_eps, c.hidden_size)
        self.norm_conv = Norm(wide, c.rms_norm_eps, c.hidden_size)
        self.conv1d = Depthwise(wide, c.ple_conv_kernel_size)

    def forward(self, r, rows, quantized):
        e = self.ple_embedding(rows, quantized, r.dtype)
        product = self.norm_key(self.key_proj(e)).float() * self.norm_query(r).float()
        s = product.unflatten(-1, (self.count, -1)).sum(-1) * self.scale
        gate = torch.sigmoid(s.sign() * s.abs().clamp_min(1e-6).sqrt())
        y = (gate.unsqueeze(-1).to(r.dtype) * self.value_proj(e).unsqueeze(-2)).flatten(-2)
        return y + F.silu(causal_conv(self.norm_conv(y), self.conv1d.weight, self.dilation))


class Layer(nn.Module):
    def __init__(self, c, sparse, ple=False):
        super().__init__()
        self.attn_hyper_connection = HyperConnection(c)
        self.mlp_hyper_connection = HyperConnection(c)
        if sparse:
            self.self_attn = SparseAttention(c)
        else:
            self.linear_attn = LinearAttention(c)
        if ple:
            self.ple = PLE(c)
        self.mlp = MoE(c)

    def forward(self, r, rope, quantized, dense, rows=None):
        """(streams, balance loss, index loss)"""
        index_loss = r.new_zeros((), dtype=torch.float32)
        if hasattr(self, "ple"):
            r = r + self.ple(r, rows, quantized)
        x, inject = self.attn_hyper_connection(r)
        if hasattr(self, "self_attn"):
            y, index_loss = self.self_attn(x, rope, dense)
        else:
            y = self.linear_attn(x)
        r = write(r, y, inject)
        x, inject = self.mlp_hyper_connection(r)
        y, balance = self.mlp(x, quantized)
        return write(r, y, inject), balance, index_loss


class MTP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.count = c.hc_count
        self.fc_embedding = Linear(c.hidden_size, c.hidden_size)
        self.fc_hidden = Linear(c.hidden_size, c.hidden_size)
        self.pre_fc_norm_embedding = Norm(c.hidden_size, c.rms_norm_eps)
        self.pre_fc_norm_hidden = Norm(c.hc_count * c.hidden_size, c.rms_norm_eps)
        self.layers = nn.ModuleList([Layer(c, sparse=True)])
        self.hyper_connection_mixer = HyperConnection(c, inject=False)

    def join(self, r, embedded):
        e = self.fc_embedding(self.pre_fc_norm_embedding(embedded))
        h = self.fc_hidden(self.pre_fc_norm_hidden(r).unflatten(-1, (self.count, -1)))
        return (h + e.unsqueeze(-2)).flatten(-2)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, self.dtype = c, torch.float32
        self.embed_tokens = nn.Module()
        self.embed_tokens.weight = nn.Parameter(torch.empty(c.vocab_size, c.hidden_size))
        self.layers = nn.ModuleList(
            [
                Layer(c, c.is_sparse(i), ple=i + 1 in c.ple_layer_ids)
                for i in range(c.num_hidden_layers)
            ]
        )
        self.hyper_connection_mixer = HyperConnection(c, inject=False)
        self.lm_head = Linear(c.hidden_size, c.vocab_size)
        self.mtp = MTP(c)
        # Tensors, not Python values: changing them must not compile the model again.
        self.register_buffer("quantized", torch.zeros(()), persistent=False)
        self.register_buffer("dense", torch.zeros((), dtype=torch.bool), persistent=False)

    def embed(self, ids):
        return F.embedding(ids, self.embed_tokens.weight).to(self.dtype)

    def rows(self, ids):
        return next(
            layer.ple.ple_embedding.rows(ids) for layer in self.layers if hasattr(layer, "ple")
        )

    def trunk(self, ids, means=None):
        """(streams after the last layer [B,T,hc*H], sum of balance losses, sum of index losses)"""
        r, rows = self.embed(ids).repeat(1, 1, self.config.hc_count), self.rows(ids)
        rope = rope_tables(self.config, ids.shape[1], ids.device)
        balance = index = 0
        for layer in self.layers:
            extra = (rows,) if hasattr(layer, "ple") else ()
            r, b, i = layer(r, rope, self.quantized, self.dense, *extra)
            balance, index = balance + b, index + i
            if means is not None:
                means.append(r.unflatten(-1, (self.config.hc_count, -1)).mean(-2))
        return r, balance, index

    def logits(self, r):
        return self.lm_head(self.hyper_connection_mixer(r))

    def mtp_step(self, r, ids):
        """Cells of residuals r with the tokens that follow them: (streams, balance loss, index
        loss).
        """
        rope = rope_tables(self.config, ids.shape[1], ids.device)
        r = self.mtp.join(r, self.embed(ids))
        return self.mtp.layers[0](r, rope, self.quantized, self.dense)

    def mtp_logits(self, r):
        return self.lm_head(self.mtp.hyper_connection_mixer(r))

    @torch.no_grad()
    def initialize(self, seed=0):
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            _initialize(name, p, generator, 2 * self.config.num_hidden_layers)


def _initialize(name, p, generator, depth):
    kind = name.rsplit(".", 2)[-2] if name.endswith("weight") else name.rsplit(".", 1)[-1]
    if "norm" in kind:
        p.fill_(1.0 if ".linear_attn.norm" in name else 0.0)
    elif kind == "A_log":
        p.copy_(torch.linspace(math.log(0.5), math.log(16), p.numel()))
    elif kind == "dt_bias":  # softplus(dt_bias) log-uniform in 0.001..0.1
        dt = torch.exp(torch.linspace(math.log(1e-3), math.log(0.1), p.numel()))
        p.copy_((dt + torch.log(-torch.expm1(-dt)))[torch.randperm(p.numel(), generator=generator)])
    elif kind == "conv1d":
        p.copy_(torch.randn(p.shape, generator=generator) * (0.05 if ".ple." in name else 0.5))
    else:
        scale = {
            "embed_tokens": 0.5,
            "lm_head": 0.01,
            "ngram_embedding": 0.3,
            "block_inject_weight": 0.03,
        }.get(kind)
        if scale is None:
            scale = p.shape[-1] ** -0.5
            if kind in ("out_proj", "o_proj", "down_proj"):
                scale /= math.sqrt(depth)
        p.copy_(torch.randn(p.shape, generator=generator) * scale)
