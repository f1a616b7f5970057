#!/usr/bin/env python3
"""Checks that every C++ file is as clang-format 14 writes it; --fix writes them so.

Status 1: some are not. Status 77 (a skip): there is no clang-format of that version, and others
format differently.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

from source import CPP, project_files

VERSION = "14"
SKIPPED = 77


def clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if program:
            said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            found = re.search(r"version (\d+)", said)
            if found and found.group(1) == VERSION:
                return program
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fix", action="store_true")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    program = clang_format()
    if program is None:
        print(f"format: not checked, clang-format {VERSION} is not installed")
        return SKIPPED
    files = [s.path for s in project_files(root) if s.suffix in CPP]
    mode = ["-i"] if arguments.fix else ["--dry-run", "-Werror"]
    status = subprocess.run([program, *mode, "--style=file", *files], cwd=root).returncode
    print(f"format: {len(files)} files" + (", some differ from clang-format's" if status else ""))
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
