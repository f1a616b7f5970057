r"""Makes the fixture of tests/tokenizer with the `tokenizers` library from PyPI (0.23).

  python tokenizer_fixture.py fixture OUT_DIR    trains a small tokenizer and writes tokenizer.json,
                                                 cases.txt, classes.txt
  python tokenizer_fixture.py cases TOKENIZER_JSON COUNT SEED OUT_FILE
                                                 COUNT random cases of another tokenizer

The training text is the source of Python's standard library and the phrases of
tokenizer_strings.py. A line of cases.txt is: `plain` or `special`, a tab, the ids separated by
spaces, a tab, the text with \\ \n \r \t \0 escaped by a backslash. `plain` is what the tokenizer
says without its added tokens, `special` what it says with them. A line of classes.txt is: first
and last code point in hexadecimal, and the class (L, M, N, s) that the regex engine gives them.
"""

import json
import pathlib
import random
import sys
import sysconfig

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, trainers)

import tokenizer_strings as strings

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
         r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
VOCABULARY = 3000
RANDOM_CASES = 2400
SPECIAL_CASES = 400
SEED = 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>x"]
USER_DEFINED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
# Looked for after normalization, and written in a form that normalization changes.
NORMALIZED = "[cafe\u0301]"


def standard_library():
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))
            if not path.name.startswith("_sysconfigdata")]


def train(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in USER_DEFINED])
    tokenizer.add_tokens([AddedToken(NORMALIZED, normalized=True)])
    return tokenizer


def without_added(path):
    """The tokenizer as plain text sees it."""
    content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    content["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(content))


def escaped(text):
    for plain, code in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\0", "\\0")):
        text = text.replace(plain, code)
    return text


def case(mode, tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return f"{mode}\t{' '.join(map(str, ids))}\t{escaped(text)}\n"


def special_text(generator, source):
    parts = []
    for _ in range(generator.randint(1, 5)):
        parts.append(generator.choice(CONTROL + USER_DEFINED + [
            NORMALIZED, "[caf\u00e9]", "<|im_", "<|im_end|", "<<|im_end|>", "<think", ">", " ",
            "\n", "e\u0301", "\u0301"]))
        if generator.random() < 0.6:
            parts.append(source.string()[:12])
    return "".join(parts)


def classes():
    """Ranges of the classes, asked of the regex engine character by character."""
    names = {}
    for name, pattern in (("L", r"\p{L}"), ("M", r"\p{M}"), ("N", r"\p{N}"), ("s", r"\s")):
        matches_removed = pre_tokenizers.Split(Regex(pattern), behavior="removed")
        codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
        kept = set()
        for begin in range(0, len(codes), 4096):
            text = "".join(map(chr, codes[begin:begin + 4096]))
            kept.update("".join(piece for piece, _ in matches_removed.pre_tokenize_str(text)))
        names.update({c: name for c in codes if chr(c) not in kept})
    ranges = []
    for code in sorted(names):
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == names[code]:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, names[code]])
    return "".join(f"{first:x} {last:x} {name}\n" for first, last, name in ranges)


def write(path, text):
    pathlib.Path(path).write_text(text, encoding="utf-8", newline="\n")


def make_fixture(folder):
    folder = pathlib.Path(folder)
    sources = standard_library()
    generator = random.Random(SEED)
    source = strings.Random(generator, sources)
    # Enough of the other scripts that merges of their bytes are learned.
    scripts = [source.from_phrases() for _ in range(40000)]
    tokenizer = train(sources[:120] + strings.PHRASES * 20 + scripts)
    path = folder / "tokenizer.json"
    write(path, tokenizer.to_str())
    plain = without_added(path)
    texts = strings.PHRASES + CONTROL + USER_DEFINED + list(strings.class_borders())
    texts += [source.string() for _ in range(RANDOM_CASES)]
    lines = [case("plain", plain, text) for text in texts]
    lines += [case("special", tokenizer, special_text(generator, source))
              for _ in range(SPECIAL_CASES)]
    write(folder / "cases.txt", "".join(lines))
    write(folder / "classes.txt", classes())


def make_cases(tokenizer_json, count, seed, out):
    plain = without_added(tokenizer_json)
    source = strings.Random(random.Random(int(seed)), standard_library())
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        for _ in range(int(count)):
            file.write(case("plain", plain, source.string()))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "fixture":
        make_fixture(sys.argv[2])
    elif len(sys.argv) == 6 and sys.argv[1] == "cases":
        make_cases(*sys.argv[2:])
    else:
        sys.exit(__doc__)
