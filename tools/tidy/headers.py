#!/usr/bin/env python3
"""Compiles alone each header that no source file of its own name proves whole.

A foo.cc includes its foo.h first (tidy.py holds it to that), so building foo.cc is the proof. The
others are compiled here, each as a file of its own:

    python3 tools/tidy/headers.py c++ [more flags]
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

from rules import module_path
from source import project_files


def unproven(root):
    sources = project_files(root)
    paths = {s.path for s in sources}
    for source in sources:
        stem = source.path[:-2]
        if source.suffix == ".h" and not {stem + ".cc", stem + ".cu"} & paths:
            yield module_path(source) or source.path, source.path


def compile_alone(command, root, include):
    text = f'#include "{include}"\n'
    done = subprocess.run(command, input=text, cwd=root, capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    base = sys.argv[1:] + ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-x", "c++"]
    base += ['-DSTRATA_TEST_DATA=""']  # the build tells tests where their files are
    headers = list(unproven(root))
    failed = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = {}
        for include, path in headers:
            public = path.startswith("include/")
            paths = ["include"] if public else ["src", "include", "."]
            if path.startswith("src/backend/cuda/"):
                paths.append("tests/emulator")  # in place of the toolkit's headers
            command = base + [f"-I{p}" for p in paths] + ["-"]
            jobs[pool.submit(compile_alone, command, root, include)] = path
        for job in concurrent.futures.as_completed(jobs):
            status, said = job.result()
            if status != 0:
                failed.append(jobs[job])
                print(f"{jobs[job]}: does not compile alone\n{said}")
    print(f"headers: {len(headers)} compiled alone, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
