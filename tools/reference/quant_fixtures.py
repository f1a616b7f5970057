#!/usr/bin/env python3
"""Makes the fixtures of the block formats with the public `gguf` Python package.

    quant_fixtures.py REPO [LIBRARY]    writes tests/quant/data of a checkout

Needs `pip install gguf numpy` (made with gguf 0.19.0), and for the errors of encoders LIBRARY, the
libggml-base that llama.cpp builds, whose encoders the package does not have. Deterministic.

For a format T, tests/quant/data holds T.codes (stored blocks: every code, extreme scales, random
bytes) and T.hashes (of each block, a 64-bit FNV-1a of the package's float32 for it, taken a value
at a time, every NaN as 0x7fc00000). The package knows the size of Q2_0 and does not decode it: its
values come from its definition in ggml, which is a line here.

gaussian.f16 holds normal numbers, and encoder_errors.txt the relative RMS error that ggml's encoder
leaves of them as rows of 1024, for each format, without and with the importance importance.f32.
"""

import ctypes
import pathlib
import sys

import gguf
import numpy as np

KINDS = gguf.GGMLQuantizationType
Q2_0 = 42
# Written to the bytes of the package, so decoded by it, and without fixtures of their own here.
SAME_BYTES = {
    "f16": (KINDS.F16, 1, 2, []),
    "bf16": (KINDS.BF16, 1, 2, []),
    "q8_0": (KINDS.Q8_0, 32, 34, []),
    "q4_0": (KINDS.Q4_0, 32, 18, []),
}
ENCODED = (*SAME_BYTES, "q6_k", "q5_0", "q5_1", "q5_k", "q4_k", "iq4_nl", "iq4_xs", "iq3_s",
           "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "q2_0")
ROW = 1024
BLOCKS = 24  # at least; more where the codes need them

SCALES = np.array([1, -1, 0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504, -65504, np.inf, -np.inf, np.nan,
                   0.007, -0.25], dtype=np.float16)

# Of a block: its values, its bytes, and where f16 numbers lie.
LAYOUTS = {
    "q5_0": (KINDS.Q5_0, 32, 22, [0]),
    "q5_1": (KINDS.Q5_1, 32, 24, [0, 2]),
    "q2_0": (None, 64, 18, [0]),
    "q2_k": (KINDS.Q2_K, 256, 84, [80, 82]),
    "q3_k": (KINDS.Q3_K, 256, 110, [108]),
    "q4_k": (KINDS.Q4_K, 256, 144, [0, 2]),
    "q5_k": (KINDS.Q5_K, 256, 176, [0, 2]),
    "q6_k": (KINDS.Q6_K, 256, 210, [208]),
    "iq1_m": (KINDS.IQ1_M, 256, 56, []),
    "iq2_xxs": (KINDS.IQ2_XXS, 256, 66, [0]),
    "iq2_xs": (KINDS.IQ2_XS, 256, 74, [0]),
    "iq2_s": (KINDS.IQ2_S, 256, 82, [0]),
    "iq3_xxs": (KINDS.IQ3_XXS, 256, 98, [0]),
    "iq3_s": (KINDS.IQ3_S, 256, 110, [0]),
    "iq4_nl": (KINDS.IQ4_NL, 32, 18, [0]),
    "iq4_xs": (KINDS.IQ4_XS, 256, 136, [0]),
    "mxfp4": (KINDS.MXFP4, 32, 17, []),
    "nvfp4": (KINDS.NVFP4, 64, 36, []),
}


def set_scales(name, blocks, offsets):
    """Extreme scales in the first blocks, ordinary ones in the others."""
    rng = np.random.default_rng(5)
    for place, offset in enumerate(offsets):
        scales = (rng.uniform(-1, 1, len(blocks)) * 0.1).astype(np.float16)
        scales[:len(SCALES)] = np.roll(SCALES, place)
        blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    if name == "iq1_m":  # a quarter of the f16 in the top of each of four words
        scales = (rng.uniform(-1, 1, len(blocks)) * 0.1).astype(np.float16)
        scales[:len(SCALES)] = SCALES
        for word in range(4):
            top = blocks[:, 48 + 2 * word + 1]
            quarter = (scales.view(np.uint16) >> (4 * word) & 15).astype(np.uint8)
            blocks[:, 48 + 2 * word + 1] = (top & 15) | quarter << 4


def spread(numbers, bits):
    """Fields of `bits` bits, the first lowest, as bytes."""
    per_byte = 8 // bits
    fields = numbers.reshape(len(numbers), -1, per_byte).astype(np.uint32)
    return (fields << (bits * np.arange(per_byte, dtype=np.uint32))).sum(axis=2).astype(np.uint8)


def set_vectors(name, blocks):
    """Every vector of the codebook: numbers in turn."""
    count = {"iq1_m": 2048, "iq2_xxs": 256, "iq2_xs": 512, "iq2_s": 1024, "iq3_xxs": 256,
             "iq3_s": 512}[name]
    width = 4 if name.startswith("iq3") else 8
    numbers = np.arange(len(blocks) * 256 // width).reshape(len(blocks), -1) % count
    low, high = (numbers & 255).astype(np.uint8), numbers >> 8
    if name == "iq1_m":
        blocks[:, :32] = low
        blocks[:, 32:48] = (blocks[:, 32:48] & 0x88) | spread(high, 4)
    elif name == "iq2_xxs":
        parts = blocks[:, 2:].reshape(len(blocks), 8, 8)
        parts[:, :, :4] = low.reshape(len(blocks), 8, 4)
        blocks[:, 2:] = parts.reshape(len(blocks), 64)
    elif name == "iq2_xs":
        signs = np.arange(numbers.size).reshape(numbers.shape) // 4 % 128
        blocks[:, 2:66] = (numbers | signs << 9).astype(np.uint16).view(np.uint8)
    elif name == "iq2_s":
        blocks[:, 2:34] = low
        blocks[:, 66:74] = spread(high, 2)
    else:
        blocks[:, 2:66] = low
        if name == "iq3_s":
            blocks[:, 66:74] = spread(high, 1)


def stored_blocks(name):
    _, values, size, offsets = LAYOUTS[name]
    rng = np.random.default_rng(sum(name.encode()))
    count = {"iq1_m": 80, "iq2_s": 48, "iq2_xs": 48, "mxfp4": 64, "nvfp4": 80}.get(name, BLOCKS)
    blocks = rng.integers(0, 256, (count, size)).astype(np.uint8)
    blocks[0], blocks[1] = 0, 255
    if values < 256:  # every byte in turn, which holds every code
        ordered = blocks[2:16]
        ordered[:] = np.arange(ordered.size).reshape(ordered.shape) % 256
    if name == "mxfp4":
        blocks[:, 0] = np.arange(count) * 4 + 3
        blocks[:4, 0] = [0, 1, 2, 255]
    if name == "nvfp4":
        blocks[:64, :4] = np.arange(256).reshape(64, 4)
    if name[:3] in ("iq1", "iq2", "iq3"):
        set_vectors(name, blocks)
    set_scales(name, blocks, offsets)
    return blocks


def q2_0_values(blocks):
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    codes = blocks[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3
    return (codes.reshape(len(blocks), 64).astype(np.float32) - np.float32(1)) * scales


def values_of(name, blocks):
    kind = {**LAYOUTS, **SAME_BYTES}[name][0]
    with np.errstate(all="ignore"):
        if kind is None:
            return q2_0_values(blocks)
        return gguf.quants.dequantize(blocks, kind).astype(np.float32)


def hashes(values):
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    result = np.full(len(bits), 0xCBF29CE484222325, dtype=np.uint64)
    for column in bits.T:
        with np.errstate(over="ignore"):
            result = (result ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return result


def load(path):
    library = ctypes.CDLL(path)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = (
        [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p])
    return library


def relative_error(rows, decoded, importance):
    weights = np.ones(ROW) if importance is None else importance.astype(np.float64)
    rows, decoded = rows.astype(np.float64), decoded.astype(np.float64)
    return np.sqrt((weights * (rows - decoded) ** 2).sum() / (weights * rows ** 2).sum())


def ggml_error(library, name, rows, importance):
    kind, values, size, _ = {**LAYOUTS, **SAME_BYTES}[name]
    number = Q2_0 if kind is None else int(kind)
    given = importance
    if given is None and name in ("iq2_xs", "iq2_xxs"):  # ggml wants some
        given = np.ones(ROW, dtype=np.float32)
    blocks = np.zeros((rows.size // values, size), dtype=np.uint8)
    library.ggml_quantize_init(number)
    library.ggml_quantize_chunk(number, rows.ctypes.data, blocks.ctypes.data, 0, len(rows), ROW,
                                None if given is None else given.ctypes.data)
    return relative_error(rows, values_of(name, blocks).reshape(rows.shape), importance)


def make_errors(out, library):
    rng = np.random.default_rng(8)
    halves = rng.standard_normal((8, ROW)).astype(np.float16)
    importance = (rng.standard_normal(ROW) ** 2 + 0.05).astype(np.float32)
    (out / "gaussian.f16").write_bytes(halves.tobytes())
    (out / "importance.f32").write_bytes(importance.tobytes())
    rows = halves.astype(np.float32)
    lines = [f"{name} {ggml_error(library, name, rows, None):.6f}"
             f" {ggml_error(library, name, rows, importance):.6f}\n" for name in ENCODED]
    (out / "encoder_errors.txt").write_text("".join(lines))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1]) / "tests" / "quant" / "data"
    assert gguf.GGML_QUANT_SIZES.get(Q2_0, (64, 18)) == (64, 18)
    for name, (kind, values, size, _) in LAYOUTS.items():
        assert kind is None or gguf.GGML_QUANT_SIZES[kind] == (values, size), name
        blocks = stored_blocks(name)
        (out / f"{name}.codes").write_bytes(blocks.tobytes())
        (out / f"{name}.hashes").write_bytes(hashes(values_of(name, blocks)).tobytes())
    if len(sys.argv) == 3:
        make_errors(out, load(sys.argv[2]))


if __name__ == "__main__":
    main()
