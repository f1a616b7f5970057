#!/usr/bin/env python3
"""Writes src/quant/codebooks/*.h: the codebooks of the IQ formats, as the public package has them.

    quant_codebooks.py REPO

Needs `pip install gguf numpy` (made with gguf 0.19.0). Deterministic.
"""

import importlib.metadata
import pathlib
import sys

import gguf.quants
import numpy as np

COLUMNS_MAX = 100


def levels_text(values):
    return ", ".join(str(int(v)) for v in values)


def packed(cls, bits):
    """Each vector as one integer: the numbers of its levels, `bits` each, the first lowest."""
    cls.init_grid()
    grid = cls.grid.reshape(cls.grid_shape)
    levels = list(cls.grid_map)
    numbers = np.array([[levels.index(v) for v in row] for row in grid], dtype=np.uint32)
    assert len({tuple(row) for row in numbers.tolist()}) == len(numbers), "a vector comes twice"
    return (numbers << (bits * np.arange(grid.shape[1], dtype=np.uint32))).sum(axis=1)


def rows_text(codes):
    words = [f"0x{int(code):04x}," for code in codes]
    per_row = (COLUMNS_MAX - 4 + 1) // (len(words[0]) + 1)
    rows = [words[i:i + per_row] for i in range(0, len(words), per_row)]
    return "\n".join("    " + " ".join(row) for row in rows)


def grid_text(name, cls, bits):
    codes = packed(cls, bits)
    count, _ = cls.grid_shape
    levels = list(cls.grid_map)
    return f"""\
inline constexpr std::array<std::uint16_t, {count}> {name}Packed = {{
{rows_text(codes)}
}};

inline constexpr std::array<std::int8_t, {len(levels)}> {name}Levels = {{{levels_text(levels)}}};
"""


def head(what):
    version = importlib.metadata.version("gguf")
    return f"""\
// {what}
// Made by tools/reference/quant_codebooks.py from the Python package gguf {version}; not edited.
// clang-format off
#pragma once

#include <array>
#include <cstdint>
"""


def grids_file(what, grids):
    parts = [grid_text(*grid) for grid in grids]
    return head(what) + """
namespace strata::quant {

""" + "\n".join(parts) + """
}  // namespace strata::quant
"""


def values_file(what, name, values):
    return head(what) + f"""
namespace strata::quant {{

inline constexpr std::array<std::int8_t, {len(values)}> {name} = {{
    {levels_text(values)}}};

}}  // namespace strata::quant
"""


def check_signs(table):
    """The table of signs is a formula: seven bits, and an eighth that makes their number even."""
    for index, signs in enumerate(table):
        assert signs == index | (index.bit_count() % 2) << 7, index


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1]) / "src" / "quant" / "codebooks"
    q = gguf.quants
    check_signs(q.IQ2_XXS.ksigns)
    files = {
        "iq1.h": grids_file("The vectors of IQ1_M, 2 bits a value.", [("kIq1Grid", q.IQ1_S, 2)]),
        "iq2.h": grids_file("The vectors of IQ2_XXS, IQ2_XS and IQ2_S, 2 bits a value.",
                             [("kIq2XxsGrid", q.IQ2_XXS, 2), ("kIq2XsGrid", q.IQ2_XS, 2),
                              ("kIq2SGrid", q.IQ2_S, 2)]),
        "iq3.h": grids_file("The vectors of IQ3_XXS and IQ3_S, 3 bits a value.",
                             [("kIq3XxsGrid", q.IQ3_XXS, 3), ("kIq3SGrid", q.IQ3_S, 3)]),
        "iq4.h": values_file("The values of IQ4_NL and IQ4_XS.", "kIq4Values",
                              q.IQ4_NL.kvalues),
    }
    for name, text in files.items():
        (out / name).write_text(text)


if __name__ == "__main__":
    main()
