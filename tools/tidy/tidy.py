#!/usr/bin/env python3
"""Holds the tree to the rules of STYLE.md that a machine can hold.

    python3 tools/tidy/tidy.py            every finding as path:line: sentence; status 1 if any
    python3 tools/tidy/tidy.py --mermaid  the diagram of ARCHITECTURE.md, from layers.txt
"""

import argparse
import pathlib
import sys

from layers import Layers
from rules import RULES, is_text
from source import project_files


class Project:
    def __init__(self, root):
        self.sources = project_files(root)
        self.by_path = {s.path: s for s in self.sources}
        self.texts = [s for s in self.sources if is_text(s)]
        self.layers = Layers.of(root)
        self._exceptions = {}
        self._used = set()
        listed = self.by_path.get("tools/tidy/exceptions.txt")
        for number, line in enumerate(listed.lines if listed else [], 1):
            parts = [part.strip() for part in line.split(":")]
            if len(parts) == 3 and not line.startswith("#"):
                self._exceptions[(parts[0], parts[1])] = number

    def excused(self, rule, path):
        if (rule, path) not in self._exceptions:
            return False
        self._used.add((rule, path))
        return True

    def findings(self):
        for rule in RULES:
            yield from rule(self)
        for (rule, path), number in self._exceptions.items():
            if (rule, path) not in self._used:
                yield "tools/tidy/exceptions.txt", number, f"excuses no '{rule}' in {path}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--mermaid", action="store_true")
    arguments = parser.parse_args()
    if arguments.mermaid:
        print(Layers.of(arguments.root).mermaid())
        return 0
    project = Project(arguments.root)
    findings = sorted(set(project.findings()))
    for path, line, sentence in findings:
        print(f"{path}:{line}: {sentence}")
    print(f"tidy: {len(project.sources)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
