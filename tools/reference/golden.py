#!/usr/bin/env python3
"""Unpacks an .npz of golden answers into what the tests read.

    golden.py golden.npz OUT

writes OUT/golden.bin, the arrays one after another as little-endian float32 or int32 in C order,
and OUT/golden.json, for each key its dtype ("f32" or "i32"), its shape and its first byte. Needs
the standard library alone.
"""

import argparse
import ast
import json
import pathlib
import struct
import zipfile

# NumPy's spelling of a dtype -> ours, its struct letter, and the struct letter it is stored with.
DTYPES = {
    "<f4": ("f32", "f", "f"),
    "<f8": ("f32", "d", "f"),
    "<i4": ("i32", "i", "i"),
    "<i8": ("i32", "q", "i"),
}


def read_npy(raw):
    """The dtype, shape and values' bytes of a .npy file."""
    if raw[:6] != b"\x93NUMPY":
        raise ValueError("not a .npy file")
    wide = raw[6] >= 2
    (length,) = struct.unpack_from("<I" if wide else "<H", raw, 8)
    start = 12 if wide else 10
    header = ast.literal_eval(raw[start : start + length].decode("latin-1"))
    if header["fortran_order"]:
        raise ValueError("an array in Fortran order")
    return header["descr"], list(header["shape"]), raw[start + length :]


def stored(descr, shape, raw):
    """Our name of the dtype and the bytes as the tests read them."""
    if descr not in DTYPES:
        raise ValueError(f"dtype {descr}, wanted one of {', '.join(DTYPES)}")
    name, source, target = DTYPES[descr]
    count = 1
    for size in shape:
        count *= size
    if source == target:
        return name, raw[: 4 * count]
    return name, struct.pack(f"<{count}{target}", *struct.unpack(f"<{count}{source}", raw))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("npz", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()

    index, data = {}, bytearray()
    with zipfile.ZipFile(arguments.npz) as archive:
        for entry in archive.namelist():
            descr, shape, raw = read_npy(archive.read(entry))
            name, values = stored(descr, shape, raw)
            index[entry.removesuffix(".npy")] = {"dtype": name, "shape": shape, "offset": len(data)}
            data += values
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "golden.bin").write_bytes(data)
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in index.items())
    (arguments.out / "golden.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
