"""The rules. Each is a function of the project that yields (path, line, sentence)."""

import ast
import pathlib
import re

from layers import folder_of
from source import CPP, TEXT

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
TEST_LINES_MAX = 600
BYTES_MAX = 2 << 20
LARGE_FOLDERS = ("models/", "tests/golden/")

# Below cli/, results go back to the caller: nothing prints, exits, reads the environment or throws.
BANNED = (
    ("stdout", r"\b(?:std::)?v?f?printf\s*\(|\bput(?:s|char)\s*\(|\bstd::(?:cout|cerr|clog)\b",
     "prints; return the text or an error"),
    ("exit", r"\b(?:exit|_exit|quick_exit|abort|terminate)\s*\(",
     "ends the process; return an error, or STRATA_CHECK an invariant"),
    ("environment", r"\b(?:secure_)?(?:get|set|put)env\s*\(",
     "uses the environment; take an option in a struct"),
    ("shell", r"\b(?:std::)?system\s*\(|\bpopen\s*\(", "starts a shell"),
    ("throw", r"\bthrow\b|\bstd::sto(?:i|l|ll|ul|ull|f|d|ld)\s*\(",
     "throws; return a Result (numbers: std::from_chars)"),
    ("new", r"\bnew\b|\bdelete\b(?!\s*;\s*$)|\b(?:m|c|re)alloc\s*\(",
     "owns memory by hand; use a container, unique_ptr or a Buffer"),
    ("random", r"\bs?rand\s*\(|\brandom_device\b|\bmt19937",
     "draws from a hidden state; draws are functions of seed, position and token"),
    ("unsafe", r"\b(?:v?sprintf|str(?:n?cpy|n?cat|tok)|gets|ato[ifl]l?|alloca)\s*\(",
     "has a bounded or checked replacement"),
    ("assert", r"(?<!static_)\bassert\s*\(|<cassert>", "is off in some builds; use STRATA_CHECK"),
    ("using", r"\busing\s+namespace\b", "hides where names come from"),
    ("flush", r"\bstd::endl\b", r"flushes; write '\n'"),
)
OWNED_NEW = re.compile(r"\bunique_ptr<[\w:<>, ]+>\s*\w*[({]\s*new\b|=\s*delete\s*;|#include <new>")

# A contract says what, for any caller on any machine.
CONTRACT_WORDS = re.compile(
    r"\b(decode|decoding|prefill|phase|tiles?|warps?|launch|avx2?|avx512|neon|cuda)\b", re.I)
# Split so that this file passes its own rule.
MARKERS = re.compile(
    r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b|(?i:\bfor n" r"ow\b|\bplace" r"holder\b)")
MACHINE_PATHS = re.compile(r"(?<![\w.$}{/-])/(?:wo" r"rk|ro" r"ot|ho" r"me|tm" r"p)(?:/|\b)")
TENSOR_NAME = re.compile(
    r"\b(?:blk\.|token_embd|output_norm|ffn_\w+|attn_\w+|ssm_\w+|nextn\.|ngram_\w+\.)")
TENSOR_HOMES = re.compile(r"^src/(?:(?:model|spec/dflash)/(?:tensors|weights|config)|convert/)")
FILE_NAME = re.compile(r"^[a-z0-9_]+\.[a-z]+$|^CMakeLists\.txt$|^README\.md$")


def below_cli(source):
    return source.suffix in CPP and source.path.startswith(("src/", "include/")) and (
        not source.path.startswith("src/cli/"))


def module_path(source):
    for top in ("src/", "include/"):
        if source.path.startswith(top) and source.suffix in CPP:
            return source.path[len(top):]
    return None


def layering(project):
    layers = project.layers
    for number, message in layers.errors:
        yield "tools/tidy/layers.txt", number, message
    for source in project.sources:
        path = module_path(source)
        if path is None:
            continue
        user = layers.module_of(path)
        if user is None:
            yield source.path, 1, "lies in no folder that layers.txt lists"
            continue
        for line, include in source.includes:
            used = layers.module_of(include[1:])
            if include.startswith("<") and not layers.may_include_external(user, include):
                yield source.path, line, f"{user} may not include {include}>"
            elif include.startswith('"') and used is None:
                yield source.path, line, f'includes {include}": wanted "folder/file.h" from src/'
            elif include.startswith('"') and not layers.may_include(user, used):
                yield source.path, line, f"{user} may not include {used}"


def own_header_first(project):
    paths = {s.path for s in project.sources}
    for source in project.sources:
        own = source.path[: -len(source.suffix)] + ".h" if source.suffix == ".cc" else None
        if own not in paths:
            continue
        wanted = module_path(source) and own[len("src/"):] or own
        first = source.includes[0] if source.includes else (1, "")
        if first[1][1:] != wanted:
            yield source.path, first[0], f'does not include "{wanted}" first, which proves it whole'


def library_per_folder(project):
    """Explicit sources, in a target whose uses layers.txt allows."""
    layers, by_path = project.layers, project.by_path
    for module in layers.allowed:
        folder = f"src/{module}"
        here = [s for s in project.sources
                if s.suffix in (".cc", ".cu") and folder_of(s.path) == folder]
        if not here:
            continue
        lists = by_path.get(f"{folder}/CMakeLists.txt")
        if lists is None:
            yield here[0].path, 1, f"no {folder}/CMakeLists.txt builds it"
            continue
        target = layers.target_of(module)
        if not re.search(rf"\bstrata_library\(\s*{target}\b", lists.text):
            yield lists.path, 1, f"has no strata_library({target} ...)"
        for used in uses_of(lists.text):
            module_used = next((m for m in layers.allowed if layers.target_of(m) == used), None)
            if module_used is None or not layers.may_link(module, module_used):
                yield lists.path, 1, f"USES {used}, which layers.txt does not grant {module}"


def uses_of(text):
    for call in re.findall(r"\bstrata_library\(([^)]*)\)", text):
        for group in re.findall(r"(?<!PRIVATE_)\bUSES\b([^A-Z)]*)", call):
            yield from (word for word in group.split() if "::" not in word)


def names(text, path):
    """Whether a CMakeLists.txt names the source `path`, maybe through a loop over ${name}.cc."""
    word = re.escape(path)
    if "${name}.cc" in text:
        word = rf"(?:{word}|{re.escape(path[:-3])})"
    return re.search(rf"(?<![\w./-]){word}(?![\w.])", text) is not None


def every_source_is_built(project):
    lists = {folder_of(s.path): s.text for s in project.sources
             if s.path.endswith("CMakeLists.txt")}
    for source in project.sources:
        if source.suffix not in (".cc", ".cu"):
            continue
        folders = [folder_of(source.path)]
        while "/" in folders[-1]:
            folders.append(folder_of(folders[-1]))
        named = any(names(lists[f], source.path[len(f) + 1:]) for f in folders if f in lists)
        if not named:
            yield source.path, 1, "is named in no CMakeLists.txt of its folder or those above"
    for folder, text in lists.items():
        for line, content in enumerate(text.split("\n"), 1):
            if re.search(r"file\(\s*GLOB|aux_source_directory", content):
                yield f"{folder}/CMakeLists.txt", line, "lists sources by pattern; name each"


def banned_calls(project):
    for source in filter(below_cli, project.sources):
        code = OWNED_NEW.sub(lambda m: " " * len(m.group()), source.code)
        for rule, pattern, why in BANNED:
            for found in re.finditer(pattern, code, re.M):
                if not project.excused(rule, source.path):
                    what = found.group().strip().rstrip("(").strip()
                    yield source.path, source.line_of(found.start()), f"'{what}' {why} [{rule}]"


def columns_and_whitespace(project):
    for source in project.texts:
        data = source.suffix in (".json", ".md") or "/data/" in source.path
        if data or source.path == "LICENSE":
            continue
        for number, line in enumerate(source.lines, 1):
            if len(line) > COLUMNS_MAX:
                yield source.path, number, f"{len(line)} columns, at most {COLUMNS_MAX}"
            if line != line.rstrip():
                yield source.path, number, "white space at the end of the line"
            if "\t" in line:
                yield source.path, number, "a tab; indent with spaces"
        if source.text and not source.text.endswith("\n"):
            yield source.path, len(source.lines), "no newline at the end of the file"


def function_length(project):
    for source in project.sources:
        if source.suffix in CPP:
            spans = source.functions
        elif source.suffix == ".py":
            spans = [(n.lineno, n.end_lineno) for n in ast.walk(ast.parse(source.text))
                     if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        else:
            continue
        for first, last in spans:
            if last - first + 1 > FUNCTION_LINES_MAX:
                yield (source.path, first,
                       f"a function of {last - first + 1} lines, at most {FUNCTION_LINES_MAX}")


def file_length(project):
    for source in project.sources:
        if source.suffix not in CPP | {".py", ".sh", ".cmake"}:
            continue
        limit = TEST_LINES_MAX if source.path.startswith("tests/") else FILE_LINES_MAX
        if len(source.lines) - 1 > limit:
            yield source.path, limit, f"{len(source.lines) - 1} lines, at most {limit}"


def headers(project):
    for source in project.sources:
        if source.suffix not in (".h", ".cuh"):
            continue
        if "#pragma once" not in source.code:
            yield source.path, 1, "a header without '#pragma once'"
        if not source.comments.strip():
            yield source.path, 1, "a header without a comment that says what it is for"
        elif not source.path.startswith("src/op/") and not source.text.startswith("//"):
            yield source.path, 1, "a header opens with a comment that says what it is for"


def ops_are_tested(project):
    """Every op of ops.def is called in tests/op."""
    listed = project.by_path.get("src/op/ops.def")
    for found in re.finditer(r"^STRATA_OP\((\w+)", listed.text if listed else "", re.M):
        word = re.compile(rf"\b{found.group(1)}\b")
        files = (s for s in project.sources if s.path.startswith("tests/op/") and s.suffix in CPP)
        if not any(word.search(s.code) for s in files):
            yield (listed.path, listed.line_of(found.start()),
                   f"nothing in tests/op calls {found.group(1)}")


def dead_headers(project):
    included = {i[1:] for s in project.sources if s.suffix in CPP for _, i in s.includes}
    for source in project.sources:
        if source.suffix not in (".h", ".cuh"):
            continue
        path = module_path(source) or source.path
        stands_in = source.path.startswith("tests/emulator/")  # for a toolkit's header of the name
        if path not in included and not stands_in:
            yield source.path, 1, "a header that nobody includes"


def contract_words(project):
    for source in project.sources:
        if source.path.startswith("src/op/") and source.suffix in CPP | {".def"}:
            for found in CONTRACT_WORDS.finditer(source.text):
                yield (source.path, source.line_of(found.start()),
                       f"a contract knows no '{found.group()}': it has no caller and no machine")


def markers(project):
    for source in project.texts:
        if "/data/" in source.path or source.path == "LICENSE":
            continue
        for pattern, why in ((MARKERS, "says what is unfinished; finish it or leave it out"),
                             (MACHINE_PATHS, "is a path of one machine")):
            for found in pattern.finditer(source.text):
                yield source.path, source.line_of(found.start()), f"'{found.group()}' {why}"


def tensor_names(project):
    for source in project.sources:
        inside = source.path.startswith("src/") and source.suffix in CPP
        if not inside or TENSOR_HOMES.match(source.path):
            continue
        for at, literal in source.strings:
            if TENSOR_NAME.search(literal):
                yield (source.path, source.line_of(at),
                       f"a tensor's name ({literal}); tensors.h and convert/ spell them")


def names_and_sizes(project):
    for source in project.sources:
        name = pathlib.PurePosixPath(source.path).name
        code = source.path.startswith(("src/", "include/", "bench/")) or (
            source.suffix in CPP | {".py"})
        if code and not FILE_NAME.match(name):
            yield source.path, 1, "a file name that is not snake_case"
        if source.size > BYTES_MAX and not source.path.startswith(LARGE_FOLDERS):
            yield source.path, 1, f"{source.size} bytes, at most {BYTES_MAX} outside models/"


def links(project):
    """What the documents point to exists."""
    for source in project.sources:
        if source.suffix != ".md":
            continue
        for found in re.finditer(r"\]\((?!\w+:|#)([^)#\s]+)[^)]*\)", source.text):
            target = (source.file.parent / found.group(1)).resolve()
            if not target.exists():
                yield source.path, source.line_of(found.start()), f"no {found.group(1)} to link to"


CASE = re.compile(r"\b[A-Z]{2,6}-\d\d\b")


def cases(project):
    """The ids that tests name are listed, and those that are listed are named."""
    page = project.by_path.get("docs/cases.md")
    listed = {}
    for number, line in enumerate(page.lines if page else [], 1):
        if line.startswith("| ") and CASE.match(line[2:]):
            listed[CASE.match(line[2:]).group()] = number
    named = set()
    for source in project.sources:
        if not source.path.startswith("tests/") or source.suffix not in CPP:
            continue
        for found in CASE.finditer(source.text):
            named.add(found.group())
            if found.group() not in listed:
                yield (source.path, source.line_of(found.start()),
                       f"docs/cases.md does not say what {found.group()} is")
    for case, number in listed.items():
        if case not in named:
            yield page.path, number, f"no test names {case}"


def diagram(project):
    page = project.by_path.get("ARCHITECTURE.md")
    if page is not None and project.layers.mermaid() not in page.text:
        yield page.path, 1, "its diagram is not what 'tools/tidy/tidy.py --mermaid' prints"


RULES = (layering, own_header_first, library_per_folder, every_source_is_built, banned_calls,
         columns_and_whitespace, function_length, file_length, headers, dead_headers,
         ops_are_tested, contract_words, markers, tensor_names, names_and_sizes, links, cases,
         diagram)


def is_text(source):
    return source.suffix in TEXT and not source.path.startswith(LARGE_FOLDERS)
