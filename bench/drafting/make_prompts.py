"""Writes prompts.jsonl: 50 prompts of 5 kinds from this project's own texts, for
`strata eval lossless --prompt-file`. The file is kept as it was written once.
"""

import json
from pathlib import Path

from drafting import ROOT, joined, repeated

COUNT = 10  # of each kind
BYTES, LONG_BYTES = 240, 1600


def pieces(text, size):
    """COUNT pieces of about so many bytes, spread evenly, each from the start of a line."""
    step = (len(text) - size) // COUNT
    starts = [text.rfind("\n", 0, i * step) + 1 for i in range(COUNT)]
    return [text[at:at + size] for at in starts]


def main():
    code, prose = joined((ROOT / "tools/train").glob("*.py")), joined((ROOT / "docs").rglob("*.md"))
    questions = (ROOT / "bench/drafting/questions.txt").read_text(encoding="utf-8").splitlines()
    kinds = {"code": pieces(code, BYTES), "prose": pieces(prose, BYTES),
             "repeated": pieces(repeated(60), BYTES), "questions": questions[::3][:COUNT],
             "long": pieces(prose + code, LONG_BYTES)}
    with open(ROOT / "bench/drafting/prompts.jsonl", "w", encoding="utf-8") as out:
        for kind, texts in kinds.items():
            key = "question" if kind == "questions" else "prompt"
            for text in texts:
                out.write(json.dumps({"kind": kind, key: text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
