"""Strata and llama.cpp in turn on one file, on the same threads: ratios of their times.

Each round runs both programs, so that what else the machine does meets both. A ratio is llama.cpp's
time over Strata's, of one round; printed are the median and the range over the rounds. Both run the
same tokens; that they compute the same is seen from the likeliest token after the last row. Drafts
are those of a DFlash2 draft with an embedding and a head of its own (strata dflash-head).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--strata", required=True, help="the program")
    parser.add_argument("--llama", required=True, help="the driver that run.sh builds")
    parser.add_argument("--llama-version", default="", help="for the record")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both")
    parser.add_argument("--rounds", type=int, default=5, help="of windows and drafts; 0: none")
    parser.add_argument("--prompt-rounds", type=int, default=3)
    parser.add_argument("--depth", type=int, default=64, help="tokens before the first window")
    parser.add_argument("--tokens", type=int, default=16, help="decoded in a round, by each window")
    parser.add_argument("--windows", type=numbers, default=[4], metavar="LIST",
                        help="rows of the windows beside one row (default: 4)")
    parser.add_argument("--prompts", type=numbers, default=[512], metavar="LIST",
                        help="tokens of the prompts; empty: none (default: 512)")
    parser.add_argument("--chunk", type=int, default=512,
                        help="of Strata's prompts; llama.cpp takes what pays (default: 512)")
    parser.add_argument("--draft", help="a DFlash2 draft for the model, a GGUF file")
    parser.add_argument("--guesses", type=numbers, default=[3, 7], metavar="LIST",
                        help="of a draft (default: 3,7)")
    parser.add_argument("--drafts", type=int, default=64, help="in a timed run")
    parser.add_argument("--repeats", type=int, default=3,
                        help="timed runs of each program in a round, of which the median counts; "
                        "others come before them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="where the raw numbers go, as JSON")
    return parser.parse_args()


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with status {done.returncode}")
    return json.loads(done.stdout)


def without_mtp(strata, model, folder):
    """The file itself, or a copy without the MTP layer, which llama.cpp refuses."""
    found = run([strata, "inspect", model, "--json"])
    if not found["metadata"].get("qwen4exp.nextn_predict_layers", {}).get("value"):
        return model
    copy = os.path.join(folder, "model.gguf")
    subprocess.run([strata, "quantize", model, copy, "--type", "keep", "--no-mtp"], check=True)
    return copy


def spread(values):
    return {"median": median(values), "least": min(values), "most": max(values)}


def line(name, values):
    s = spread(values)
    return f"{name:<34} {s['median']:8.3f}  ({s['least']:.3f} to {s['most']:.3f})"


def places(args):
    """Where each program runs: options of Strata, and an argument of the other."""
    if args.device == "cuda":
        return ["--device", "cuda"], "cuda"
    return ["-t", str(args.threads)], str(args.threads)


def decode_round(args, model):
    place, llama_place = places(args)
    common = [str(args.depth), str(args.tokens)]
    rows = [str(rows) for rows in (1, *args.windows)]
    strata = run([args.strata, "bench", "decode", "-m", model, *place, "--depth",
                  common[0], "-n", common[1], "--rows", ",".join(rows), "--repeats",
                  str(args.repeats), "--seed", str(args.seed), "--json"])
    llama = run([args.llama, model, llama_place, "decode", *common, str(args.repeats),
                 str(args.seed), *rows])
    return {"strata": strata, "llama": llama}


def prompt_round(args, model, tokens):
    place, llama_place = places(args)
    strata = run([args.strata, "bench", "prompt", "-m", model, *place, "-n", str(tokens),
                  "--chunk", str(args.chunk), "--repeats", str(args.repeats),
                  "--seed", str(args.seed), "--json"])
    llama = run([args.llama, model, llama_place, "prompt", str(tokens), str(args.repeats),
                 str(args.seed)])
    return {"strata": strata, "llama": llama}


def prompt_rounds(args, model):
    return [prompt_round(args, model, tokens) for tokens in args.prompts]


def draft_round(args, model):
    place, llama_place = places(args)
    found = run([args.strata, "inspect", args.draft, "--json"])["metadata"]
    width = (found["dflash.embedding_length"]["value"]
             * len(found["dflash.target_layers"]["value"]))
    mask = found["tokenizer.ggml.mask_token_id"]["value"]
    guesses = [str(count) for count in args.guesses]
    strata = run([args.strata, "bench", "draft", "-m", model, "--dflash", args.draft, *place,
                  "--depth", str(args.depth), "-n", str(args.drafts), "--guesses",
                  ",".join(guesses), "--repeats", str(args.repeats), "--seed", str(args.seed),
                  "--json"])
    llama = run([f"{args.llama.removesuffix('_timer')}_draft_timer", args.draft, llama_place,
                 str(width), str(mask), str(args.depth), str(args.drafts), str(args.repeats),
                 str(args.seed), *guesses])
    return {"strata": strata, "llama": llama}


def check_tokens(rounds, pairs):
    for one in rounds:
        for strata, llama in pairs(one):
            if strata["top_token"] != llama["top_token"]:
                print(f"note: the likeliest tokens differ, {strata['top_token']} and "
                      f"{llama['top_token']}: rounding, where the two are close")
                return


def report_decode(rounds):
    strata = [one["strata"]["windows"] for one in rounds]
    llama = [one["llama"]["windows"] for one in rounds]
    check_tokens(rounds, lambda one: zip(one["strata"]["windows"], one["llama"]["windows"]))
    ratios = {}
    for i, first in enumerate(strata[0]):
        name = f"window of {first['rows']}"
        ratios[f"{name}: Strata, ms"] = [s[i]["ms"]["median"] for s in strata]
        ratios[f"{name}: llama.cpp / Strata"] = [
            median(l[i]["ms"]) / s[i]["ms"]["median"] for s, l in zip(strata, llama)]
        ratios[f"{name}: of the floor"] = [s[i]["reached"] for s in strata]
        if i == 0:
            continue
        ratios[f"{name} / of 1: Strata"] = [
            s[i]["ms"]["median"] / s[0]["ms"]["median"] for s in strata]
        ratios[f"{name} / of 1: llama.cpp"] = [
            median(l[i]["ms"]) / median(l[0]["ms"]) for l in llama]
        union = first["experts_read"] / strata[0][0]["experts_read"]
        print(f"experts read by a window of {first['rows']}: {union:.2f} times those of one row")
    return ratios


def report_prompts(rounds):
    ratios = {}
    for same in zip(*rounds):
        check_tokens(same, lambda one: [(one["strata"]["prompt"], one["llama"])])
        name = f"prompt of {same[0]['llama']['rows']}"
        ratios[f"{name}: Strata, ms"] = [one["strata"]["prompt"]["ms"]["median"] for one in same]
        ratios[f"{name}: llama.cpp / Strata"] = [
            median(one["llama"]["ms"]) / one["strata"]["prompt"]["ms"]["median"] for one in same]
        ratios[f"{name}: of the floor"] = [one["strata"]["prompt"]["reached"] for one in same]
    return ratios


def report_drafts(rounds):
    ratios = {}
    for i, first in enumerate(rounds[0]["llama"]["drafts"]):
        name = f"draft of {first['guesses']}"
        blocks = [[draft for draft in one["strata"]["drafts"] if draft["draft"] == "dflash"][i]
                  for one in rounds]
        ratios[f"{name}: Strata, ms"] = [block["ms"]["median"] for block in blocks]
        ratios[f"{name}: llama.cpp / Strata"] = [
            median(one["llama"]["drafts"][i]["ms"]) / block["ms"]["median"]
            for one, block in zip(rounds, blocks)]
    return ratios


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        model = without_mtp(args.strata, args.model, folder)
        decode, prompt, draft = [], [], []
        for i in range(max(args.rounds, args.prompt_rounds if args.prompts else 0)):
            print(f"round {i + 1}", file=sys.stderr)
            if i < args.rounds:
                decode.append(decode_round(args, model))
                if args.draft:
                    draft.append(draft_round(args, model))
            if args.prompts and i < args.prompt_rounds:
                prompt.append(prompt_rounds(args, model))
    ratios = report_decode(decode) if decode else {}
    ratios |= report_prompts(prompt) if prompt else {}
    ratios |= report_drafts(draft) if draft else {}
    print(f"{'':<34}   median   (least to most), "
          + ("on the GPU" if args.device == "cuda" else f"{args.threads} threads"))
    for name, values in ratios.items():
        print(line(name, values))
    if args.out:
        settings = {key: value for key, value in vars(args).items()
                    if key not in ("strata", "llama", "out", "model")}
        with open(args.out, "w", encoding="utf-8") as out:
            json.dump({"model": os.path.basename(args.model), "mtp_left_out": model != args.model,
                       "settings": settings,
                       "ratios": {name: spread(values) for name, values in ratios.items()},
                       "decode": decode, "prompt": prompt, "draft": draft}, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
