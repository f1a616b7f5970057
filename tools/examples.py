#!/usr/bin/env python3
"""Runs the examples of a page (lines that begin with `    $ `) and compares what they print.

Numbers are compared as numbers: whole ones exactly, others within 3 per cent, times and rates,
checksums and counts of guesses not at all. A line of `...` stands for all that follows; an example
that shows no lines has to succeed. With --fix the page gets what was printed where any number is
another.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "    $ "
TOLERANCE = 0.03

# What differs from run to run, machine to machine or between kinds of kernels.
VARIES = re.compile(
    r'"\w+_(?:ms|tps)":[\d.e+-]+|checksum +[0-9a-f]{16}'
    r"|[\d.]+(?: to [\d.]+)?(?=\)? (?:ms|%|M[B/]|GB/s|G/s|tokens/s))|\([\d.]+ to [\d.]+\)"
    r"|(?<=: )[\d.]+(?= G/s)|(?:\d+ of (?:8 bits|BF16|F32))"
    r"|guesses +\d+, \d+|after token \d+|position\":\d+|floor .*")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def equal(wanted, got, tolerance):
    wanted, got = (VARIES.sub("~", text.rstrip()) for text in (wanted, got))
    if NUMBER.split(wanted) != NUMBER.split(got):
        return False
    for one, other in zip(NUMBER.findall(wanted), NUMBER.findall(got)):
        whole = one.isdigit() and other.isdigit()
        near = not whole and math.isclose(float(one), float(other), rel_tol=tolerance)
        if one != other and not near:
            return False
    return True


def examples(lines):
    """[(index of the command's line, [index of the lines of its output])]"""
    found = []
    for i, line in enumerate(lines):
        if line.startswith(PROMPT):
            found.append((i, []))
        elif line.startswith("    ") and found and i == found[-1][0] + len(found[-1][1]) + 1:
            found[-1][1].append(i)
        elif not line and found and i + 1 < len(lines) and lines[i + 1].startswith("    ") \
                and i == found[-1][0] + len(found[-1][1]) + 1:
            found[-1][1].append(i)
    return found


def run(command, folder, strata):
    environment = dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    (folder / "bin").mkdir(exist_ok=True)
    link = folder / "bin/strata"
    if not link.exists():
        link.symlink_to(strata)
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          check=False)
    lines = done.stdout.rstrip("\n").split("\n") if done.stdout.strip() else []
    return done.returncode, lines


def prepare(folder):
    for name in ("models", "tests", "bench", "tools", "LICENSE"):
        (folder / name).symlink_to(ROOT / name)


def check(page, strata, fix):
    tolerance = 0 if fix else TOLERANCE
    lines = page.read_text(encoding="utf-8").split("\n")
    out, last, wrong = [], 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for at, shown in examples(lines):
            wanted = [lines[i][4:] for i in shown]
            while wanted and not wanted[-1]:
                wanted.pop()
            status, got = run(lines[at][len(PROMPT):], folder, strata)
            if wanted and wanted[-1] == "...":
                got = got[:len(wanted) - 1] + ["..."]
            if wanted:
                same = len(wanted) == len(got) and all(
                    equal(one, other, tolerance) for one, other in zip(wanted, got))
            else:
                same = status == 0  # what it prints is not shown
            if not same:
                wrong += 1
                print(f"{page.name}:{at + 1}: {lines[at].strip()}", *got, sep="\n    ")
            out += lines[last:at + 1]
            out += (lines[at + 1:at + 1 + len(wanted)] if same else
                    [f"    {line.rstrip()}".rstrip() for line in got])
            last = at + 1 + len(wanted)
    if fix and wrong:
        page.write_text("\n".join(out + lines[last:]), encoding="utf-8")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--strata", type=Path, default=ROOT / "build/cpu/strata")
    parser.add_argument("--fix", action="store_true")
    args = parser.parse_args()
    wrong = check(args.page, args.strata.resolve(), args.fix)
    print(f"{args.page}: {wrong} examples print something else")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
