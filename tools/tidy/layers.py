"""layers.txt: which folder may include which, and the diagram of it."""

import pathlib


class Layers:
    def __init__(self, text):
        self.allowed = {}
        self.external = {}
        self.errors = []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#")[0].strip()
            if line:
                self._read(number, line)

    def _read(self, number, line):
        name, _, below = line.partition(":")
        target = self.external if name.startswith("<") else self.allowed
        for used in below.split():
            if used not in self.allowed:
                self.errors.append(
                    (number, f"{name} uses {used} before it is listed: a cycle or a typing error")
                )
        target[name.strip()] = set(below.split())

    @classmethod
    def of(cls, root):
        return cls((root / "tools/tidy/layers.txt").read_text())

    def module_of(self, path):
        """The longest listed folder that holds `path` (relative to src/ or include/), or None."""
        fits = [m for m in self.allowed if path.startswith(m + "/")]
        return max(fits, key=len, default=None)

    def may_include(self, user, used):
        return used == user or used in self.allowed[user]

    def may_link(self, user, used):
        """What it includes, and through the public headers whoever implements those."""
        public = "strata" in self.allowed[user] and "strata" in self.allowed[used]
        return public or used in self.allowed[user]

    def may_include_external(self, user, include):
        rules = [m for m in self.external if include.startswith(m)]
        return all(user in self.external[m] for m in rules)

    def target_of(self, module):
        return module.replace("/", "_")

    def _reaches(self, above, below):
        return any(b == below or self._reaches(b, below) for b in self.allowed[above])

    def _node(self, module):
        shown = "include/strata" if module == "strata" else module
        return f'{self.target_of(module)}["{shown}"]'

    def mermaid(self):
        """The allowed includes, leaving out those that a longer path of arrows already says."""
        out = ["graph TD"]
        for user, below in self.allowed.items():
            for used in sorted(below):
                if not any(self._reaches(b, used) for b in below if b != used):
                    out.append(f"  {self._node(user)} --> {self._node(used)}")
        return "\n".join(out)


def folder_of(path):
    return pathlib.PurePosixPath(path).parent.as_posix()
