#!/usr/bin/env python3
"""Makes the fixtures of the format and GGUF tests with the public `gguf` Python package.

    gguf_fixtures.py make REPO      writes tests/quant/data and tests/gguf/data of a checkout
    gguf_fixtures.py check FILE...  reads GGUF files with the package and prints what is in them

Needs `pip install gguf numpy` (made with gguf 0.19.0). Deterministic.

For a format T, tests/quant/data holds T.floats (float32, what to encode), T.encoded (the package's
bytes for them), T.codes (stored bytes, every code among them) and T.decoded (the package's float32
for those).
"""

import pathlib
import sys

import gguf
import numpy as np

BLOCK = 32
TYPES = {
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


def f32(bits):
    return np.array(bits, dtype=np.uint32).view(np.float32)


def float_cases(rng):
    """Floats for the 16-bit formats: edges of rounding and range, then random bit patterns."""
    edges = f32(
        [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12000, 0x00000001,
         0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x477FE000, 0x477FEFFF,
         0x477FF000, 0x47800000, 0x38800000, 0x387FFFFF, 0x387FE000, 0x387FF000, 0x33000000,
         0x33000001, 0x32FFFFFF, 0x33800000, 0x33C00000, 0x3F801000, 0x3F803000, 0x3F801001,
         0x3F800FFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7F7FFF, 0x7F7F8000])
    bits = rng.integers(0, 1 << 32, 700, dtype=np.uint64).astype(np.uint32)
    halves = rng.integers(0, 0x47800000, 297).astype(np.uint32)  # within reach of binary16
    floats = np.concatenate([edges, f32(bits), f32(halves)])
    # What becomes of a signalling NaN depends on the machine that NumPy runs on.
    quiet = floats.view(np.uint32) | np.where(np.isnan(floats), 0x400000, 0).astype(np.uint32)
    return quiet.view(np.float32)[:1024]


def block_cases(rng):
    """Blocks of 32 floats."""
    blocks = [np.zeros(BLOCK), -np.zeros(BLOCK)]
    blocks += [rng.standard_normal(BLOCK) * s
               for s in (1, 1, 1, 0.02, 0.02, 1e-3, 1e3, 1e-6, 1e-30, 1e-37, 1e6, 1e8, 1e30, 1e37)]
    blocks += [rng.uniform(-1, 1, BLOCK) * s for s in (1, 1, 7, 500, 6e4, 1e-7)]
    blocks.append(np.abs(rng.standard_normal(BLOCK)))
    blocks.append(-np.abs(rng.standard_normal(BLOCK)))
    one = np.zeros(BLOCK)
    one[17] = -3.25
    blocks += [one, -one, np.full(BLOCK, 0.1), np.full(BLOCK, -0.1)]
    # Ties: codes that fall half-way, with a scale that is exactly 1.
    ties = np.arange(BLOCK) - 15.5
    ties[0] = 127
    blocks += [ties, -ties]
    ties = (np.arange(BLOCK) % 16) - 7.5
    ties[0] = -8
    blocks += [ties, -ties]
    # Two values share the largest magnitude: the first of them sets Q4_0's scale.
    twin = rng.uniform(-1, 1, BLOCK)
    twin[3], twin[20] = 2, -2
    blocks += [twin, -twin]
    blocks += [rng.integers(-127, 128, BLOCK) * 2.0**-9 for _ in range(4)]
    blocks.append(np.full(BLOCK, 1e-45))
    blocks.append(rng.integers(-100, 101, BLOCK) * 2.0**-149)
    with np.errstate(over="ignore"):
        blocks.append(np.linspace(-3.4e38, 3.4e38, BLOCK))
    return np.stack(blocks).astype(np.float32)


def stored_cases(name, rng):
    """Stored bytes: every code, with ordinary and extreme scales."""
    if name in ("f16", "bf16"):
        codes = np.concatenate([
            np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01,
                      0x3C00, 0x7F80, 0xFF80, 0x7FC0, 0x007F, 0x0080], dtype=np.uint16),
            rng.integers(0, 1 << 16, 1007).astype(np.uint16)])
        if name == "f16":
            signalling = ((codes & 0x7C00) == 0x7C00) & ((codes & 0x3FF) != 0)
            codes = codes | np.where(signalling, 0x200, 0).astype(np.uint16)
        return codes.view(np.uint8)
    width = {"q8_0": 32, "q4_0": 16}[name]
    scales = np.array([1, -1, 0.0, -0.0, 6e-8, 6.1e-5, 65504, -65504, 0.007, np.inf, 0.5, 3e-3]
                      + [0.01] * 12, dtype=np.float16)
    codes = np.arange(len(scales) * width, dtype=np.uint32).astype(np.uint8).reshape(-1, width)
    codes[12:] = rng.integers(0, 256, codes[12:].shape)
    return np.concatenate([scales.view(np.uint8).reshape(-1, 2), codes], axis=1).reshape(-1)


def make_formats(out):
    out.mkdir(parents=True, exist_ok=True)
    for number, (name, qtype) in enumerate(TYPES.items()):
        rng = np.random.default_rng(1000 + number)
        half = name in ("f16", "bf16")
        floats = float_cases(rng) if half else block_cases(rng)
        with np.errstate(all="ignore"):
            encoded = gguf.quants.quantize(floats, qtype)
            codes = stored_cases(name, rng)
            size = {"q8_0": 34, "q4_0": 18}.get(name)
            decoded = gguf.quants.dequantize(codes.reshape(-1, size) if size else codes, qtype)
        (out / f"{name}.floats").write_bytes(floats.tobytes())
        (out / f"{name}.encoded").write_bytes(encoded.tobytes())
        (out / f"{name}.codes").write_bytes(codes.tobytes())
        (out / f"{name}.decoded").write_bytes(decoded.astype(np.float32).tobytes())


def add_everything(writer):
    """One key of every type, and tensors of every format that Strata reads."""
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4000000000)
    writer.add_int32("t.i32", -2000000000)
    writer.add_uint64("t.u64", (1 << 63) + 5)
    writer.add_int64("t.i64", -(1 << 62))
    writer.add_float32("t.f32", 0.1)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.yes", True)
    writer.add_bool("t.no", False)
    writer.add_string("t.string", "naïve 東京 \U0001F600")
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.5, -0.25])
    writer.add_array("t.bools", [True, False, True])
    writer.add_array("t.strings", ["", "a", "Ġhello", "東京"])


def tensor_cases():
    """(name, type, float32 values in row-major order)."""
    rng = np.random.default_rng(7)
    kinds = gguf.GGMLQuantizationType
    shapes = [("a.weight", kinds.F32, (3, 5)), ("b.weight", kinds.F16, (2, 3, 4)),
              ("c.weight", kinds.BF16, (7,)), ("d.weight", kinds.Q8_0, (3, 64)),
              ("e.weight", kinds.Q4_0, (2, 2, 32))]
    for name, kind, shape in shapes:
        yield name, kind, rng.standard_normal(shape).astype(np.float32)


def add_tensors(writer):
    for name, kind, values in tensor_cases():
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("f.table", np.array([[1, -2], [1 << 40, -(1 << 62)]], dtype=np.int64))


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_files(out):
    out.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(out / "package.gguf", "fixture")
    add_everything(writer)
    add_tensors(writer)
    finish(writer)
    writer = gguf.GGUFWriter(out / "split.gguf", "fixture", split_max_tensors=2)
    writer.add_string("t.string", "of the first part")
    add_tensors(writer)
    finish(writer)
    writer = gguf.GGUFWriter(out / "aligned.gguf", "fixture")
    writer.add_custom_alignment(128)
    add_tensors(writer)
    finish(writer)


def check(paths):
    for path in paths:
        reader = gguf.GGUFReader(path)
        print(path)
        for key, field in reader.fields.items():
            print(f"  {key} = {field.contents()!r} ({[t.name for t in field.types]})")
        for tensor in reader.tensors:
            raw = np.asarray(tensor.data)
            print(f"  {tensor.name} {tensor.tensor_type.name} {list(tensor.shape)}"
                  f" {raw.nbytes} bytes, sum {int(raw.view(np.uint8).astype(np.int64).sum())}")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        tests = pathlib.Path(sys.argv[2]) / "tests"
        make_formats(tests / "quant" / "data")
        make_files(tests / "gguf" / "data")
    elif len(sys.argv) > 2 and sys.argv[1] == "check":
        check(sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
