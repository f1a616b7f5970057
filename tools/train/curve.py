"""log.jsonl files -> a small SVG of training and held-out loss, and a Markdown table."""

import argparse
import json

WIDTH, HEIGHT, LEFT, TOP = 640, 320, 46, 16
SERIES = {"loss": "#9ecae1", "held_loss": "#1f5fa8", "held_mtp1": "#c26a1a"}
LABELS = {
    "loss": "training, one batch",
    "held_loss": "held out",
    "held_mtp1": "held out, MTP layer",
}


def read(paths):
    return [json.loads(line) for path in paths for line in open(path)]


def svg(lines, low, high):
    last = max(line["step"] for line in lines)

    def x(step):
        return LEFT + (WIDTH - LEFT - 12) * step / last

    def y(value):
        return TOP + (HEIGHT - TOP - 34) * (high - min(max(value, low), high)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" '
        f'font-size="11"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    ]
    for i in range(6):
        value = low + (high - low) * i / 5
        parts.append(
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - 12}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>'
        )
        step = last * i // 5
        parts.append(
            f'<text x="{x(step):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{step}</text>'
        )
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
    for i, (key, color) in enumerate(SERIES.items()):
        points = " ".join(
            f"{x(line['step']):.1f},{y(line[key]):.1f}" for line in lines if key in line
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"/>'
            f'<text x="{WIDTH - 170}" y="{TOP + 14 + 16 * i}" fill="{color}">{LABELS[key]}</text>'
        )
    return "\n".join(parts) + "\n</svg>\n"


def table(lines, every):
    rows = [
        "| step | tokens (millions) | training | held out | held out, MTP |",
        "|---|---|---|---|---|",
    ]
    training = {line["step"]: line["loss"] for line in lines if "loss" in line}
    for line in [line for line in lines if "held_loss" in line][::every]:
        near = max((s for s in training if s <= line["step"]), default=None)
        rows.append(
            f"| {line['step']} | {line['step'] * 131072 / 1e6:.0f} | {training.get(near, '')} "
            f"| {line['held_loss']} | {line['held_mtp1']} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--svg", required=True)
    args = parser.parse_args()
    lines = read(args.logs)
    with open(args.svg, "w") as f:
        f.write(svg(lines, 1.0, 5.0))
    print(table(lines, 1))
