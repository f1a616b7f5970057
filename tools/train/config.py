"""The model's shape: the public config.json (flat or nested) to a dataclass and back."""

import dataclasses
import json
from pathlib import Path

MASK64 = (1 << 64) - 1


@dataclasses.dataclass
class Config:
    vocab_size: int
    eos_token_id: int  # the n-gram table's end token, <|endoftext|>
    hidden_size: int = 256
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 64
    partial_rotary_factor: float = 0.25
    rope_theta: float = 1e7
    mrope_section: tuple = (3, 3, 2)
    indexer_n_heads: int = 2
    indexer_head_dim: int = 32
    indexer_budget: int = 128
    indexer_compress_ratio: int = 4
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 6
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    hc_count: int = 4
    hc_lowrank: int = 32
    num_experts: int = 24
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 128
    ngram_size: int = 3
    heads_per_ngram: int = 4
    ngram_vocab_size_base: int = 10000
    make_ngram_vocab_size_divisible_by: int = 128
    split_ngram_parts: int = 4
    ple_embed_dim: int = 256
    ple_layer_ids: tuple = (2,)
    ple_conv_kernel_size: int = 4
    mtp_num_hidden_layers: int = 1
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    seed: int = 1234

    @property
    def rotary_dim(self):
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def ngram_heads(self):
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def keep_blocks(self):
        return self.indexer_budget // self.indexer_compress_ratio

    def is_sparse(self, layer):
        return layer % self.full_attention_interval == self.full_attention_interval - 1


def from_public(path):
    """Reads config.json. Only what these scripts use; layer_types must follow one interval."""
    raw = json.loads(Path(path).read_text())
    raw = raw.get("text_config", raw)
    rope = raw.get("rope_parameters", {})
    known = {f.name for f in dataclasses.fields(Config)}
    values = {k: v for k, v in {**raw, **rope}.items() if k in known}
    types = raw.get("layer_types")
    if types:
        values["full_attention_interval"] = (
            next(i for i, t in enumerate(types) if t != "linear_attention") + 1
        )
    if isinstance(values["eos_token_id"], list):
        values["eos_token_id"] = values["eos_token_id"][0]
    return Config(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def to_public(c):
    """config.json as the public checkpoints have it (nested text_config)."""
    text = dataclasses.asdict(c)
    rope = {"rope_type": "default", "mrope_interleaved": True}
    for key in ("rope_theta", "partial_rotary_factor", "mrope_section"):
        rope[key] = text.pop(key)
    layers = range(c.num_hidden_layers)
    text.update(
        model_type="qwen4_exp_text",
        dtype="bfloat16",
        hidden_act="silu",
        attention_bias=False,
        indexer_kv_heads=1,
        output_gate_type="sigmoid",
        norm_topk_prob=True,
        tie_word_embeddings=False,
        bos_token_id=None,
        pad_token_id=None,
        rope_parameters=rope,
        layer_types=["full_attention" if c.is_sparse(i) else "linear_attention" for i in layers],
    )
    return {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "tie_word_embeddings": False,
        "text_config": text,
    }


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def _is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def hash_constants(c, ple_index=0):
    """(multipliers, head sizes, head offsets, padded rows) of the n-gram table."""
    half = ((1 << 63) - 1) // c.vocab_size // 2
    base = c.seed + 10007 * ple_index
    multipliers = [
        2 * (splitmix64((base + 0x9E3779B97F4A7C15 * (i + 1)) & MASK64) % half) + 1
        for i in range(c.ngram_size)
    ]
    sizes, n = [], c.ngram_vocab_size_base
    while len(sizes) < (ple_index + 1) * c.ngram_heads:
        if _is_prime(n):
            sizes.append(n)
        n += 1
    sizes = sizes[ple_index * c.ngram_heads :]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    step = c.make_ngram_vocab_size_divisible_by
    return multipliers, sizes, offsets, -(-sum(sizes) // step) * step
