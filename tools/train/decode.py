"""The target's own text, in torch: many sequences side by side, one token a step, as served.

Every kind of state is kept as a decoder keeps it (delta-net states, convolution tails, keys and
values in half precision, block keys of the index), so a step costs the same at any length. On a
GPU the step is one recorded graph.
"""

import torch
import torch.nn.functional as F

from attention import rope_tables
from model import write


class _Rolling:
    """The last rows of a stream of rows, oldest first."""

    def __init__(self, batch, rows, width, device):
        self.rows = torch.zeros(batch, rows, width, device=device)

    def push(self, x):
        """x [B,1,W] -> the kept rows and x; x is kept, the oldest is let go."""
        every = torch.cat([self.rows, x], 1)
        self.rows.copy_(every[:, 1:])
        return every


class _Delta:
    """One delta-net layer's state."""

    def __init__(self, layer, batch, device):
        self.layer = layer
        self.tail = _Rolling(batch, layer.conv1d.weight.shape[-1] - 1, sum(layer.split), device)
        keys = layer.split[0] // layer.groups
        self.state = torch.zeros(batch * layer.heads, keys, layer.dim, device=device)

    def reset(self):
        self.tail.rows.zero_()
        self.state.zero_()

    def step(self, x):
        m, state = self.layer, self.state
        window = self.tail.push(m.in_proj_qkv(x))
        mixed = F.silu((window * m.conv1d.weight[:, 0].T).sum(1))
        q, k, v = mixed.split(m.split, -1)
        q, k = (t.unflatten(-1, (m.groups, -1)) for t in (q, k))
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * q.shape[-1] ** -0.5
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        q, k = (t.repeat_interleave(m.heads // m.groups, 1).flatten(0, 1) for t in (q, k))
        v = v.unflatten(-1, (m.heads, -1)).flatten(0, 1)
        beta = torch.sigmoid(m.in_proj_b(x)).flatten().unsqueeze(-1)
        decay = (-m.A_log.exp() * F.softplus(m.in_proj_a(x) + m.dt_bias)).exp().flatten()
        state.mul_(decay[:, None, None])
        delta = beta * (v - torch.bmm(k.unsqueeze(1), state).squeeze(1))
        state.baddbmm_(k.unsqueeze(2), delta.unsqueeze(1))
        o = torch.bmm(q.unsqueeze(1), state).view(len(x), 1, m.heads, m.dim)
        o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + m.eps) * m.norm.weight
        return m.out_proj(o.flatten(-2) * torch.sigmoid(m.in_proj_z(x)))


class _Sparse:
    """One sparse-attention layer's state."""

    def __init__(self, layer, batch, length, device):
        self.layer = layer
        half = torch.float16 if torch.device(device).type == "cuda" else torch.float32
        self.k = torch.zeros(batch, layer.kv, length, layer.dim, device=device, dtype=half)
        self.v = torch.zeros_like(self.k)
        index = layer.indexer
        self.recent = _Rolling(batch, index.ratio - 1, index.dim, device)
        self.blocks = torch.zeros(batch, -(-length // index.ratio), index.dim, device=device)

    def reset(self):
        self.recent.rows.zero_()

    def visible(self, x, rope, at):
        """Bool [B, length]: the tokens that row `at` may look at."""
        m, index = self.layer, self.layer.indexer
        both = index.index_qk_proj(x).unflatten(-1, (index.heads + 1, -1))
        q = _rotate(index.q_layernorm(both[:, 0, : index.heads]), rope, at)
        mean = self.recent.push(both[:, :, index.heads]).mean(1)
        block = at // index.ratio
        key = _rotate(index.k_layernorm(mean).unsqueeze(1), rope, block * index.ratio)
        self.blocks.index_copy_(1, block, key)
        scores = torch.relu(torch.einsum("bhd,bnd->bhn", q, self.blocks)).sum(1)
        number = torch.arange(scores.shape[-1], device=x.device)
        done = (at + 1) // index.ratio
        masked = scores.masked_fill(number >= done, float("-inf"))
        best = masked.sort(dim=-1, descending=True, stable=True).indices[:, : m.keep]
        chosen = torch.zeros_like(masked, dtype=torch.bool).scatter(-1, best, True)
        chosen &= number < done
        position = torch.arange(self.k.shape[2], device=x.device)
        tokens = chosen.repeat_interleave(index.ratio, -1)[:, : len(position)]
        return (tokens | (position >= done * index.ratio)) & (position <= at)

    def step(self, x, rope, at):
        m = self.layer
        q, gate = m.q_proj(x).unflatten(-1, (m.heads, -1)).chunk(2, -1)
        k = _rotate(m.k_norm(m.k_proj(x)[:, 0].unflatten(-1, (m.kv, -1))), rope, at)
        v = m.v_proj(x)[:, 0].unflatten(-1, (m.kv, -1))
        self.k.index_copy_(2, at, k.unsqueeze(2).to(self.k.dtype))
        self.v.index_copy_(2, at, v.unsqueeze(2).to(self.v.dtype))
        q = _rotate(m.q_norm(q[:, 0]), rope, at).unflatten(1, (m.kv, -1)) * m.dim**-0.5
        logits = (q.to(self.k.dtype) @ self.k.mT).float()
        logits = logits.masked_fill(~self.visible(x, rope, at)[:, None, None], float("-inf"))
        o = (logits.softmax(-1).to(self.v.dtype) @ self.v).float().flatten(1, 2).unsqueeze(1)
        return m.o_proj((o * torch.sigmoid(gate)).flatten(-2))


def _rotate(x, rope, at):
    """x [B,heads,D] at the position in the one-element tensor `at`."""
    cos, sin = (t.index_select(0, at) for t in rope)
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Decoder:
    """States of `batch` sequences of up to `length` tokens, and the step that moves them on."""

    def __init__(self, model, batch, length, last_n=64):
        c = model.config
        self.model, self.device = model, model.embed_tokens.weight.device
        self.length, self.last_n = length, last_n
        self.rope = rope_tables(c, length, self.device)
        self.ids = torch.zeros(batch, length + 1, dtype=torch.int64, device=self.device)
        self.prompt = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.temperature = torch.zeros(batch, 1, device=self.device)
        self.penalty = torch.ones(batch, 1, device=self.device)
        self.recent = torch.full(
            (batch, max(last_n, c.ngram_size)), c.eos_token_id, device=self.device
        )
        self.at = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.tail = None
        self.states = []
        for layer in model.layers:
            if hasattr(layer, "ple"):
                rows = (c.ple_conv_kernel_size - 1) * c.ngram_size
                self.tail = _Rolling(batch, rows, c.hc_count * c.hidden_size, self.device)
            if hasattr(layer, "self_attn"):
                self.states.append(_Sparse(layer.self_attn, batch, length, self.device))
            else:
                self.states.append(_Delta(layer.linear_attn, batch, self.device))
        self.graph = None

    def reset(self):
        self.at.zero_()
        self.recent.fill_(self.model.config.eos_token_id)
        for state in self.states:
            state.reset()
        if self.tail:
            self.tail.rows.zero_()

    def _ple(self, ple, r):
        rows = ple.ple_embedding.rows(self.recent)[:, -1:]
        e = ple.ple_embedding(rows, self.model.quantized, r.dtype)
        product = ple.norm_key(ple.key_proj(e)) * ple.norm_query(r)
        s = product.unflatten(-1, (ple.count, -1)).sum(-1) * ple.scale
        gate = torch.sigmoid(s.sign() * s.abs().clamp_min(1e-6).sqrt())
        y = (gate.unsqueeze(-1) * ple.value_proj(e).unsqueeze(-2)).flatten(-2)
        window = self.tail.push(ple.norm_conv(y))[:, :: ple.dilation]
        return y + F.silu((window * ple.conv1d.weight[:, 0].T).sum(1, keepdim=True))

    def logits(self):
        """Runs the token at the current position: logits [B, vocabulary]."""
        token = self.ids.index_select(1, self.at)
        self.recent.copy_(torch.cat([self.recent[:, 1:], token], 1))
        r = self.model.embed(token).float().repeat(1, 1, self.model.config.hc_count)
        for layer, state in zip(self.model.layers, self.states):
            if hasattr(layer, "ple"):
                r = r + self._ple(layer.ple, r)
            x, inject = layer.attn_hyper_connection(r)
            sparse = isinstance(state, _Sparse)
            y = state.step(x, self.rope, self.at) if sparse else state.step(x)
            r = write(r, y, inject)
            x, inject = layer.mlp_hyper_connection(r)
            y, _ = layer.mlp(x, self.model.quantized)
            r = write(r, y, inject)
        return self.model.logits(r)[:, 0]

    def step(self):
        """One token on: the prompt's where there is one, else drawn at each row's temperature after
        its repetition penalty over the last tokens.
        """
        logits = self.logits()
        seen = self.recent[:, -self.last_n :]
        values = logits.gather(1, seen)
        values = torch.where(values > 0, values / self.penalty, values * self.penalty)
        logits = logits.scatter(1, seen, values)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-20, 1 - 1e-7)))
        drawn = (logits + self.temperature * noise).argmax(-1, keepdim=True)
        following = self.at + 1
        given = self.ids.index_select(1, following)
        drawn = torch.where(following < self.prompt.unsqueeze(-1), given, drawn)
        self.ids.index_copy_(1, following, drawn)
        self.at.add_(1)

    @torch.no_grad()
    def run(self, ids, prompt, temperature, penalty):
        """ids [B, length] hold prompts of `prompt` tokens; returns them continued to `length`."""
        self.ids[:, : ids.shape[1]] = ids
        self.prompt.copy_(prompt)
        self.temperature.copy_(temperature.view(-1, 1))
        self.penalty.copy_(penalty.view(-1, 1))
        self.reset()
        for _ in range(self.length - 1):
            self._advance()
        return self.ids[:, : self.length].clone()

    def _advance(self):
        if self.device.type != "cuda":
            self.step()
            return
        if self.graph is None:
            kept = self.ids.clone()
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self.step()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
            self.ids.copy_(kept)
            self.reset()
        self.graph.replay()
