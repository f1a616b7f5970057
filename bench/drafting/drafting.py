"""What drafting gains on five kinds of text: tokens a window, and speed beside plain decoding.

Runs `strata eval acceptance`, in which the drafters take turns on each prompt, so that what else
the machine does meets all of them. A round runs every kind once, and once each draft of --format;
printed are medians over the rounds and their range. A text that a drafter changes ends the bench.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRAFTERS = ("suffix", "mtp", "dflash", "auto")
NAMES = ("serial", "owner", "colour", "weight", "height", "status", "parent", "label", "amount",
         "origin", "target", "volume")


def joined(paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(paths))


def repeated(count):
    """Code of one pattern, whose names change."""
    parts = []
    for i in range(count):
        name = f"{NAMES[i % len(NAMES)]}_{i}"
        parts.append(f"    def get_{name}(self):\n"
                     f'        """Return the {name} of this item."""\n'
                     f"        return self._{name}\n\n")
    return "class Item:\n" + "".join(parts)


def write_kinds(args, folder):
    """[(kind, options of the command)]; texts are this project's own or made here."""
    code, prose = joined((ROOT / "tools/train").glob("*.py")), joined((ROOT / "docs").rglob("*.md"))
    texts = {"code": code, "prose": prose, "repeated": repeated(120), "long": prose + code}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    kinds = []
    for name in ("code", "prose", "repeated", "questions", "long"):
        tokens = args.long_prompt if name == "long" else args.prompt
        source = ["-f", f"{name}={folder / name}.txt", "--prompt-tokens", str(tokens)]
        if name == "questions":
            source = ["--questions", f"{name}={ROOT / 'bench/drafting/questions.txt'}"]
        count = max(1, args.prompts // 2) if name == "long" else args.prompts
        kinds.append((name, [*source, "--prompts", str(count)]))
    return kinds


def run(args, draft, options, drafters):
    command = [args.strata, "eval", "acceptance", "-m", args.model, "--dflash", draft, "-n",
               str(args.tokens), "-t", str(args.threads), "--json", *options]
    if args.mtp:
        command += ["--mtp", args.mtp]
    for drafter in drafters:
        command += ["--draft", drafter]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"strata ended with status {done.returncode}: {' '.join(command)}")
    return json.loads(done.stdout)


def measure(args, folder):
    kinds, raw = write_kinds(args, folder), []
    for i in range(args.rounds):
        print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
        for name, options in kinds:
            for trial in run(args, args.dflash, options, DRAFTERS):
                raw.append({"round": i, "kind": name, **trial})
        for given in args.format:
            name, draft = given.split("=", 1)
            for trial in run(args, draft, kinds[0][1], ("dflash",)):
                raw.append({"round": i, "format": name, **trial})
    return raw


def select(raw, **wanted):
    return [t for t in raw if all(t.get(key) == value for key, value in wanted.items())]


def row(name, trials):
    speeds = [t["speedup"] for t in trials]
    windows = statistics.median(t["tokens_per_window"] for t in trials)
    draft, verify = (statistics.median(t[key] / max(1, t["windows"]) for t in trials)
                     for key in ("draft_ms", "verify_ms"))
    share = f"{draft / (draft + verify):.2f}" if draft + verify else "-"
    return (f"| {name} | {windows:.2f} | {statistics.median(speeds):.2f} | {min(speeds):.2f} to "
            f"{max(speeds):.2f} | {share} |")


def medians(raw):
    """{drafter: {kind: median of the speed beside plain decoding}}"""
    kinds = dict.fromkeys(t["kind"] for t in raw if "format" not in t)

    def median(drafter, kind):
        trials = select(raw, kind=kind, draft=drafter, format=None)
        return statistics.median(t["speedup"] for t in trials)

    return {d: {k: median(d, k) for k in kinds} for d in DRAFTERS}


def mean(values):
    """Geometric: each kind weighs the same."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def goals(speeds):
    single = [d for d in DRAFTERS if d != "auto"]
    fast = max(speeds["dflash"]["code"], speeds["auto"]["code"])
    yield "DFlash2 or auto at least 1.6 times plain decoding on code", fast, fast >= 1.6
    least = min(speeds["auto"][k] / max(1, *(speeds[d][k] for d in single)) for k in speeds["auto"])
    yield "auto at least 0.98 of the best of the others on each kind", least, least >= 0.98
    over = mean(speeds["auto"].values()) / max(1, *(mean(speeds[d].values()) for d in single))
    yield "auto at least 1.05 times the best single one over all kinds", over, over >= 1.05


def report(raw):
    heading = ("| {} | tokens a window | speed | range | draft's share of the time |\n"
               "|---|---|---|---|---|")
    lines = []
    for kind in dict.fromkeys(t["kind"] for t in raw if "format" not in t):
        lines.append(heading.format(kind))
        for drafter in ("none", *DRAFTERS):
            lines.append(row(drafter, select(raw, kind=kind, draft=drafter, format=None)))
        lines.append("")
    formats = dict.fromkeys(t["format"] for t in raw if "format" in t)
    if formats:
        lines.append(heading.format("code, DFlash2 in"))
        lines += [row(name, select(raw, format=name, draft="dflash")) for name in formats]
        lines.append("")
    speeds = medians(raw)
    lines += ["| over all kinds | speed |", "|---|---|"]
    lines += [f"| {d} | {mean(speeds[d].values()):.2f} |" for d in DRAFTERS]
    lines += ["", "| goal | found | |", "|---|---|---|"]
    for goal, found, met in goals(speeds):
        lines.append(f"| {goal} | {found:.3f} | {'met' if met else 'not met'} |")
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the program")
    parser.add_argument("--model", default=str(ROOT / "models/strata-mini.gguf"))
    parser.add_argument("--dflash", default=str(ROOT / "models/strata-mini-draft.gguf"))
    parser.add_argument("--mtp", default=str(ROOT / "models/strata-mini-mtp.gguf"),
                        help="a file of the MTP layer; empty: the model's own")
    parser.add_argument("--format", action="append", default=[], metavar="NAME=FILE",
                        help="the draft in another number format, tried on code; several")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8, help="of each kind; half of long ones")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--long-prompt", type=int, default=1200)
    parser.add_argument("--tokens", type=int, default=160, help="written after each at most")
    parser.add_argument("--out", help="a folder for raw.json and table.md")
    return parser.parse_args()


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        raw = measure(args, Path(folder))
    table = report(raw)
    print(table, end="")
    if args.out:
        out = Path(args.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.md").write_text(table, encoding="utf-8")
        (out / "raw.json").write_text("[\n" + ",\n".join(map(json.dumps, raw)) + "\n]\n",
                                      encoding="utf-8")


if __name__ == "__main__":
    main()
