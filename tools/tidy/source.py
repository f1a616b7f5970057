"""The project's files, and C++ text taken apart far enough for line rules.

Not a parser: comments, literals and preprocessor lines are told from code, and the braces that open
functions from those that open namespaces and classes. What macros would expand to is not seen.
"""

import bisect
import functools
import pathlib
import re

CPP = {".h", ".cc", ".cu", ".cuh", ".inc"}
FOLDERS = ("include", "src", "tests", "bench", "tools", "cmake", "docs", "models", ".ci")
TEXT = CPP | {".py", ".txt", ".cmake", ".md", ".sh", ".json", ".def", ""}

TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<raw>R"(?P<mark>[^()\s\\]{0,16})\((?P<body>.*?)\)(?P=mark)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+')""",
    re.S | re.X,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<][^">\n]+)[">]', re.M)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
ACCESS = re.compile(r"\s*(?:public|private|protected)\s*:(?!:)\s*")


def blank(text):
    return re.sub(r"[^\n]", " ", text)


class Source:
    """One file. `code` and `comments` have the positions and lines of `text`."""

    def __init__(self, root, path):
        self.path = path
        self.suffix = pathlib.PurePosixPath(path).suffix
        self.file = root / path
        self.size = self.file.stat().st_size

    @functools.cached_property
    def text(self):
        return self.file.read_text(encoding="utf-8")

    @functools.cached_property
    def lines(self):
        return self.text.split("\n")

    @functools.cached_property
    def _line_starts(self):
        return [0] + [m.end() for m in re.finditer("\n", self.text)]

    def line_of(self, position):
        return bisect.bisect_right(self._line_starts, position)

    @functools.cached_property
    def _apart(self):
        code, comments, strings = [], [], []
        at = 0
        for token in TOKEN.finditer(self.text):
            between = self.text[at : token.start()]
            piece = token.group()
            is_comment = token.lastgroup == "comment" or token.group("comment") is not None
            code += [between, blank(piece)]
            comments += [blank(between), piece if is_comment else blank(piece)]
            if not is_comment and token.group("char") is None:
                strings.append((token.start(), piece))
            at = token.end()
        code.append(self.text[at:])
        comments.append(blank(self.text[at:]))
        return "".join(code), "".join(comments), strings

    @property
    def code(self):
        """The text with comments and literals blanked."""
        return self._apart[0]

    @property
    def comments(self):
        return self._apart[1]

    @property
    def strings(self):
        """(position, literal) of every string that is not an include."""
        directives = [(m.start(), m.end()) for m in INCLUDE.finditer(self.text)]
        return [
            (at, s) for at, s in self._apart[2] if not any(a <= at < b for a, b in directives)
        ]

    @functools.cached_property
    def includes(self):
        """(line, '"folder/file.h' or '<vector')."""
        return [(self.line_of(m.start(1)), m.group(1)) for m in INCLUDE.finditer(self.text)]

    @functools.cached_property
    def functions(self):
        """(first line, last line) of every function with a body."""
        code = DIRECTIVE.sub(lambda m: blank(m.group()), self.code)
        found, scopes, start = [], [], 0
        for token in re.finditer(r"[{};]", code):
            at = token.start()
            inside = bool(scopes) and scopes[-1][0] in ("function", "other")
            if token.group() == "{":
                kind = "other" if inside else scope_kind(code[start:at])
                scopes.append((kind, self.line_of(header_start(code, start))))
            elif token.group() == "}" and scopes:
                kind, first = scopes.pop()
                if kind == "function":
                    found.append((first, self.line_of(at)))
            start = start if inside and token.group() == ";" else at + 1
        return found


def header_start(code, start):
    access = ACCESS.match(code, start)
    start = access.end() if access else start
    return start + len(code[start:]) - len(code[start:].lstrip())


def scope_kind(header):
    """What the brace after `header` opens, at namespace or class scope."""
    if re.search(r"\bnamespace\b|\bextern\s*$", header):
        return "namespace"
    if ")" in header and not re.search(r"(?<![=!<>])=(?!=)\s*$", header):
        return "function"
    if re.search(r"\b(class|struct|union)\b", header):
        return "class"
    return "other"


def project_files(root):
    """Every file of the project's own folders and root, build outputs and caches left out."""
    files = [p for p in root.iterdir() if p.is_file()]
    for folder in FOLDERS:
        files += [p for p in (root / folder).rglob("*") if p.is_file()]
    paths = sorted(p.relative_to(root).as_posix() for p in files)
    return [Source(root, p) for p in paths if "__pycache__" not in p]
