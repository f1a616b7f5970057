#!/usr/bin/env python3
"""Writes a GGUF draft with its BF16 tensors as F32: the same values, which llama.cpp multiplies
with F32 inputs, not with inputs rounded to BF16.

    widen.py DRAFT.gguf OUT.gguf        needs the Python package gguf
"""

import sys

import gguf
import numpy as np


def main(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "dflash")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        element = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, element)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
            data = gguf.quants.dequantize(data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
