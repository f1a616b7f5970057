"""A GGUF file of the target as a torch model: the values that Strata runs, rounding included.

Formats: F32, F16, BF16, Q8_0, Q4_0. Names and order of value heads are undone as `strata convert`
makes them.
"""

import struct
from pathlib import Path

import numpy as np
import torch

from config import Config
from model import Model

SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9
# GGML type: (values in a block, its bytes)
TYPES = {0: (1, 4), 1: (1, 2), 30: (1, 2), 8: (32, 34), 2: (32, 18)}

BLOCK = {
    "hc_attn_norm.weight": "attn_hyper_connection.hc_norm.weight",
    "hc_attn_down.weight": "attn_hyper_connection.input_mix_weight_down.weight",
    "hc_attn_up.weight": "attn_hyper_connection.input_mix_weight_up.weight",
    "hc_attn_inject.weight": "attn_hyper_connection.block_inject_weight.weight",
    "hc_ffn_norm.weight": "mlp_hyper_connection.hc_norm.weight",
    "hc_ffn_down.weight": "mlp_hyper_connection.input_mix_weight_down.weight",
    "hc_ffn_up.weight": "mlp_hyper_connection.input_mix_weight_up.weight",
    "hc_ffn_inject.weight": "mlp_hyper_connection.block_inject_weight.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "indexer.q_norm.weight": "self_attn.indexer.q_layernorm.weight",
    "indexer.k_norm.weight": "self_attn.indexer.k_layernorm.weight",
    "ple_key.weight": "ple.key_proj.weight",
    "ple_value.weight": "ple.value_proj.weight",
    "ple_norm_key.weight": "ple.norm_key.weight",
    "ple_norm_query.weight": "ple.norm_query.weight",
    "ple_norm_conv.weight": "ple.norm_conv.weight",
    "ple_conv1d.weight": "ple.conv1d.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
    "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
}
MTP = {
    "nextn.enorm.weight": "pre_fc_norm_embedding.weight",
    "nextn.hnorm.weight": "pre_fc_norm_hidden.weight",
    "nextn.hc_head_norm.weight": "hyper_connection_mixer.hc_norm.weight",
    "nextn.hc_head_down.weight": "hyper_connection_mixer.input_mix_weight_down.weight",
    "nextn.hc_head_up.weight": "hyper_connection_mixer.input_mix_weight_up.weight",
}
GLOBAL = {
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_hc_norm.weight": "hyper_connection_mixer.hc_norm.weight",
    "output_hc_down.weight": "hyper_connection_mixer.input_mix_weight_down.weight",
    "output_hc_up.weight": "hyper_connection_mixer.input_mix_weight_up.weight",
}
JOINED = {  # two tensors of the file are one of the model: (first, second, dimension, name)
    "indexer.q_proj.weight": ("indexer.k_proj.weight", 0, "self_attn.indexer.index_qk_proj.weight"),
    "ffn_gate_exps.weight": ("ffn_up_exps.weight", 1, "mlp.experts.gate_up_proj"),
}


class Reader:
    """Metadata and dequantized tensors of one GGUF file."""

    def __init__(self, path):
        self.data, self.at = np.memmap(path, dtype=np.uint8, mode="r"), 0
        magic, version, tensors, keys = self._take("4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path}: not a GGUF file of version 3")
        self.keys = {}
        for _ in range(keys):
            name = self._string()
            self.keys[name] = self._value(*self._take("I"))
        self.tensors = {}
        for _ in range(tensors):
            name = self._string()
            shape = self._take(f"{self._take('I')[0]}Q")
            self.tensors[name] = (shape[::-1], *self._take("IQ"))
        step = self.keys.get("general.alignment", 32)
        self.base = -(-self.at // step) * step

    def _take(self, form):
        form = "<" + form
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def _string(self):
        (size,) = self._take("Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode()

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            kind, count = self._take("IQ")
            return [self._value(kind) for _ in range(count)]
        return self._take(SCALARS[kind])[0]

    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        if kind not in TYPES:
            raise ValueError(f"{name}: GGML type {kind}, wanted one of {sorted(TYPES)}")
        block, size = TYPES[kind]
        count = int(np.prod(shape)) // block
        start = self.base + offset
        raw = np.array(self.data[start : start + count * size])
        if kind == 0:
            values = raw.view("<f4")
        elif kind == 1:
            values = raw.view("<f2").astype(np.float32)
        elif kind == 30:
            values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            rows = raw.reshape(count, size)
            scale = rows[:, :2].copy().view("<f2").astype(np.float32)
            if kind == 8:
                codes = rows[:, 2:].view(np.int8).astype(np.float32)
            else:
                codes = (
                    np.concatenate([rows[:, 2:] & 15, rows[:, 2:] >> 4], 1).astype(np.float32) - 8
                )
            values = codes * scale
        return torch.from_numpy(values.reshape(shape).copy())


def config_of(keys):
    def get(name):
        return keys["qwen4exp." + name]

    layers = get("block_count") - get("nextn_predict_layers")
    head_dim = get("attention.key_length")
    state = get("ssm.state_size")
    return Config(
        vocab_size=len(keys["tokenizer.ggml.tokens"]),
        eos_token_id=get("ple.eos_token_id"),
        hidden_size=get("embedding_length"),
        num_hidden_layers=layers,
        full_attention_interval=get("full_attention_interval"),
        num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"),
        head_dim=head_dim,
        partial_rotary_factor=get("rope.dimension_count") / head_dim,
        rope_theta=get("rope.freq_base"),
        mrope_section=tuple(get("rope.dimension_sections")[:3]),
        indexer_n_heads=get("attention.indexer.head_count"),
        indexer_head_dim=get("attention.indexer.key_length"),
        indexer_budget=get("attention.indexer.top_k"),
        indexer_compress_ratio=max(get("attention.compress_ratios")),
        linear_num_key_heads=get("ssm.group_count"),
        linear_num_value_heads=get("ssm.time_step_rank"),
        linear_key_head_dim=state,
        linear_value_head_dim=state,
        linear_conv_kernel_dim=get("ssm.conv_kernel"),
        hc_count=get("hyper_connection.count"),
        hc_lowrank=get("hyper_connection.low_rank"),
        num_experts=get("expert_count"),
        num_experts_per_tok=get("expert_used_count"),
        moe_intermediate_size=get("expert_feed_forward_length"),
        shared_expert_intermediate_size=get("expert_shared_feed_forward_length"),
        ngram_size=get("ple.ngram_size"),
        heads_per_ngram=get("ple.heads_per_ngram"),
        ngram_vocab_size_base=get("ple.head_vocab_sizes")[0],
        ple_embed_dim=get("embedding_length_per_layer_input") * len(get("ple.head_vocab_sizes")),
        ple_layer_ids=tuple(i + 1 for i in get("ple.layers")),
        ple_conv_kernel_size=get("ple.conv_kernel"),
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
    )


def _own_order(c, name, tensor):
    """Value heads back in the checkpoint's order."""
    keys, values, dim = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_value_head_dim
    to = torch.tensor([h % keys * (values // keys) + h // keys for h in range(values)])

    def heads(t, block):
        parts = t.unflatten(0, (values, block))
        out = torch.empty_like(parts)
        out[to] = parts
        return out.flatten(0, 1)

    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        first = 2 * keys * c.linear_key_head_dim
        return torch.cat([tensor[:first], heads(tensor[first:], dim)])
    if name == "attn_gate.weight":
        return heads(tensor, dim)
    if name in ("ssm_beta.weight", "ssm_alpha.weight", "ssm_dt.bias", "ssm_a"):
        return heads(tensor, 1)
    if name == "ssm_out.weight":
        return heads(tensor.T, dim).T
    return tensor


def _state(reader, c):
    """The model's state dict, hash constants left out."""
    out = {}
    for name in reader.tensors:
        if not name.startswith("blk."):
            if name in GLOBAL:
                out[GLOBAL[name]] = reader.tensor(name)
            elif reader.tensors[name][0][-1] * c.ngram_heads == c.ple_embed_dim:  # the table
                layer = c.ple_layer_ids[0] - 1
                full = f"layers.{layer}.ple.ple_embedding.ngram_embedding.weight"
                out[full] = reader.tensor(name)
            continue
        _, number, rest = name.split(".", 2)
        block = int(number)
        trunk = block < c.num_hidden_layers
        prefix = f"layers.{block}." if trunk else f"mtp.layers.{block - c.num_hidden_layers}."
        if rest in JOINED:
            second, dim, full = JOINED[rest]
            pair = [reader.tensor(name), reader.tensor(f"blk.{number}.{second}")]
            out[prefix + full] = torch.cat(pair, dim)
        elif rest in MTP:
            out["mtp." + MTP[rest]] = reader.tensor(name)
        elif rest == "nextn.eh_proj.weight":
            left, right = reader.tensor(name).chunk(2, 1)
            out["mtp.fc_embedding.weight"], out["mtp.fc_hidden.weight"] = left, right
        elif rest in BLOCK:
            tensor = _own_order(c, rest, reader.tensor(name))
            out[prefix + BLOCK[rest]] = (-tensor).log() if rest == "ssm_a" else tensor
    return out


def load(path):
    """Float32, frozen, in eval mode. The hash constants in the file must be the derived ones."""
    reader = Reader(Path(path))
    model = Model(config_of(reader.keys))
    state, wanted = _state(reader, model.config), model.state_dict()
    for name, tensor in state.items():
        tensor = tensor.reshape(wanted[name].shape)  # convolutions and vectors are squeezed there
        # Norms of the model are about 0, of the file about 1; the delta net's own is alike.
        norm = "norm" in name and not name.endswith("linear_attn.norm.weight")
        state[name] = tensor - 1 if norm else tensor
    stored = {
        "layer_multipliers": "layer_multipliers",
        "ngram_heads_vocab_sizes": "head_vocab_sizes",
    }
    for name, key in stored.items():
        derived = next(v for k, v in wanted.items() if k.endswith(name)).tolist()
        if derived != reader.keys["qwen4exp.ple." + key]:
            raise ValueError(f"{path}: {key} are not those that the shape gives, {derived}")
    state.update({k: v for k, v in wanted.items() if v.dtype == torch.int64})
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)
