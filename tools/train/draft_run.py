"""The whole of a drafter's training as stages, each of which goes on where it was stopped.

python draft_run.py --model DIR --data DIR --work WORK --out OUT --stages text,choose
python draft_run.py ... --stages train --seconds 500
python draft_run.py ... --stages mtp,compare

text     the target's own text, by torch's decoder; WORK/*.npz
choose   short runs that settle the open choices; OUT/choices.json
train    the draft; OUT/draft.safetensors, OUT/draft.json
mtp      the MTP layer, tuned; OUT/mtp.safetensors
compare  the draft before and after tuning on a kind of text it has not seen; OUT/compare.json

Dumps of Strata in WORK/dump (dump.py, which may run at the same time) are trained on beside the
texts, and measured on.
"""

import argparse
import copy
import json
import shutil
import time
from pathlib import Path

import numpy as np
import torch

import acceptance
import checkpoint
import dflash2
import dump
import evaluate
import features
import texts
import train_draft
import train_mtp

# Each group changes one thing of the base; "recipe", "draft" and "data" as the trainer takes them.
VARIANTS = {
    "gamma": [{"recipe": {"gamma": 4.0}}, {"recipe": {"gamma": 14.0}}],
    "alpha": [{"recipe": {"alpha": 0.1}}, {"recipe": {"detach": True}}],
    "gold": [{"recipe": {"gold": True}}],
    "rate": [{"recipe": {"muon": 0.01, "adam": 0.5}}, {"recipe": {"muon": 0.04, "adam": 2.0}}],
    "data": [{"data": "forced"}, {"data": "greedy"}, {"data": "sampled"}],
    "taps": [{"taps": "late"}],
    "width": [{"draft": {"intermediate_size": 256}}, {"draft": {"intermediate_size": 512}}],
    "rank": [{"draft": {"selector_rank": 32}}, {"draft": {"selector_rank": 128}}],
    "whole": [{"recipe": {"whole": 1.0}}],
}
# What a window of 5 guesses costs, in steps of the target: its rows, and the draft by the width of
# its MLP. A wider draft must be worth it.
WINDOW_COST, WIDTH_COST = 2.0, 0.09 / 256


def late(layers):
    """Five taps of the second half, as far as there are any."""
    return tuple(range(max(0, layers - 5), layers))


class Lab:
    """The target as it is shipped (rounded), its texts, and where results go."""

    def __init__(self, args):
        self.args, self.began = args, time.time()
        self.work, self.out = Path(args.work), Path(args.out)
        for folder in (self.work, self.out):
            folder.mkdir(parents=True, exist_ok=True)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_float32_matmul_precision("high")
        self.target = checkpoint.load(args.model)
        if args.rounded:
            evaluate.quantize(self.target)
        self.target.to(self.device)
        self.layers = self.target.config.num_hidden_layers

    def say(self, what, **values):
        print(f"[{time.time() - self.began:6.1f} s] {what} {json.dumps(values)}", flush=True)

    def text(self, name, count, seed, modes=texts.MODES):
        """Made once, then read back."""
        path = self.work / f"{name}.npz"
        if not path.exists():
            a = self.args
            made = texts.generate(self.target, a.data, count, a.length, seed, a.decode, modes)
            texts.save(made, path)
            self.say(f"text {name}", sequences=len(made), tokens=made.tokens)
        return texts.load(path)

    def filled(self, made, layers, residual=False):
        batch = 64 if self.device == "cuda" else 8
        return features.fill(made, self.target, layers, residual, batch).to(self.device)

    def held(self, layers, residual=False):
        """The target's greedy text after prompts of every held-out kind."""
        path, a = self.work / "held.npz", self.args
        if not path.exists():
            made = texts.generate_heldout(
                self.target, a.data, a.held, min(512, a.length), 77, a.decode
            )
            texts.save(made, path)
        return self.filled(texts.load(path), layers, residual)

    def dumped(self, name="dump", residual=False):
        """(training, held out) of what Strata dumped there; either may be None."""
        folder, parts = self.work / name, (None, None)
        if folder.exists():
            parts = features.read_dumps(folder, self.args.length, residual)
        return tuple(p if p is None else p.to(self.device) for p in parts)

    def chosen(self):
        path = self.out / "choices.json"
        if not path.exists():
            path = self.work / "choices.json"
        found = json.loads(path.read_text())["chosen"] if path.exists() else {}
        recipe = {**found.get("recipe", {}), **self.args.recipe}
        return {**found, "recipe": recipe, "draft": {**found.get("draft", {}), **self.args.draft}}

    def taps(self, kind=None):
        return late(self.layers) if kind == "late" else train_draft.default_taps(self.layers)

    def draft(self, shape, taps):
        options = argparse.Namespace(draft={**shape, "target_layer_ids": taps}, seed=0)
        mask = texts.control({"eos_token_id": self.target.config.eos_token_id}, "<|dflash_mask|>")
        return train_draft.new_draft(self.target, mask, options)


def stage_text(lab):
    lab.text("main", lab.args.count, 1)
    lab.held((0,))


def stage_choose(lab):
    """Short runs on small pools that hold every layer; the score is tokens a window on held-out
    text. A group's best change is kept where it beats the base.
    """
    a, every = lab.args, tuple(range(lab.layers))
    count, held, pools = a.choose_count, lab.held(every), {}
    for name in ("mixed", "forced", "greedy", "sampled"):
        modes = [m for m in texts.MODES if name in ("mixed", m[0])]
        pools[name] = lab.filled(lab.text(f"choose-{name}", count, 5, modes), every)
    lab.say("pools are filled")
    results, flat = {}, [("base", {})]
    for group, changes in VARIANTS.items():
        if group in a.variants.split(","):
            flat += [(f"{group}:{json.dumps(c)}", c) for c in changes]
    for name, change in flat:
        if time.time() - lab.began > a.seconds - a.choose_seconds - 15:
            lab.say("no time for more", next=name)
            break
        recipe = train_draft.Recipe(
            **{**a.recipe, "batch": a.batch // 2, **change.get("recipe", {})}
        )
        shape = {**a.draft, **change.get("draft", {})}
        model = lab.draft(shape, lab.taps(change.get("taps")))
        folder = lab.work / "choose"
        shutil.rmtree(folder, ignore_errors=True)
        run = train_draft.Run(model, recipe, folder, lab.device)
        pool = pools[change.get("data", "mixed")]
        train_draft.train(run, [pool], None, 1.0, a.choose_seconds, a.choose_steps)
        score = acceptance.measure(run.model, held)
        short = acceptance.measure(
            run.model, held, brief=True, rows=min(4, model.config.block_size)
        )
        results[name] = {"steps": run.step, **score["all"], "accepted_short": short["accepted"]}
        results[name]["kinds"] = {k: v["tokens_per_window_0.0"] for k, v in score.items()}
        lab.say(
            name, steps=run.step, accepted=score["all"]["accepted"][:4], **results[name]["kinds"]
        )
        text = json.dumps({"chosen": choose(results), "results": results}, indent=1)
        for folder in (lab.out, lab.work):
            (folder / "choices.json").write_text(text)
    lab.say("chosen", **choose(results))


def points(result, change):
    """Tokens a window of 5 guesses, over what the window costs."""
    width = change.get("draft", {}).get("intermediate_size", 768)
    tokens = 1 + sum(result["accepted"][:5])
    return (tokens + 1 + sum(result["accepted_short"][:3])) / 2 / (WINDOW_COST + WIDTH_COST * width)


def choose(results):
    """The recipe, shape and taps: the base with each group's winner, where it beats the base.
    "data" and "whole" are measured for the record: training has all kinds of text and of blocks.
    """
    base, out = points(results["base"], {}), {"recipe": {}, "draft": {}, "taps": None}
    for group, changes in VARIANTS.items():
        found = [(results.get(f"{group}:{json.dumps(c)}"), c) for c in changes]
        scored = [(points(result, c), i, c) for i, (result, c) in enumerate(found) if result]
        best = max(scored, default=(0, 0, {}))
        if best[0] > base and group not in ("data", "whole"):
            out["recipe"].update(best[2].get("recipe", {}))
            out["draft"].update(best[2].get("draft", {}))
            out["taps"] = best[2].get("taps") or out["taps"]
    return out


def stage_train(lab):
    a, chosen = lab.args, lab.chosen()
    taps = lab.taps(chosen.get("taps"))
    pools = [lab.filled(lab.text("main", a.count, 1), taps)]
    lab.say("features of the main text are there", tokens=pools[0].tokens)
    dumped, dumped_held = lab.dumped()
    if dumped is not None and set(taps) <= set(dumped.layers):
        pools.append(dumped)
        lab.say("Strata's dump", sequences=len(dumped), tokens=dumped.tokens)
        lab.say("torch against Strata", **differences(lab, dumped))
    held = lab.held(taps)
    model = lab.draft(chosen.get("draft", {}), taps)
    recipe = train_draft.Recipe(**{"batch": a.batch, **chosen["recipe"]})
    run = train_draft.Run(model, recipe, lab.work / "draft", lab.device)
    run.loss = train_draft.compile_loss() if a.compile else train_draft.block_loss
    if run.step == 0:
        run.log(shape=dflash2.to_public(model.config), recipe=recipe.__dict__)
    left = a.seconds - (time.time() - lab.began) - a.reserve
    train_draft.train(run, pools, held, a.until, left, a.steps, eval_every=80)
    score = {"held": acceptance.measure(run.model, held)}
    for rows in (4, 6):
        if rows < model.config.block_size:
            short = acceptance.measure(run.model, held, brief=True, rows=rows)
            score[f"held, blocks of {rows}"] = short
    if dumped_held is not None and set(taps) <= set(dumped_held.layers):
        score["held, dumped"] = acceptance.measure(run.model, dumped_held)
    run.log(**score)
    dflash2.save(run.model, lab.work / "draft-model")
    shutil.copy(lab.work / "draft-model/model.safetensors", lab.out / "draft.safetensors")
    shutil.copy(lab.work / "draft-model/config.json", lab.out / "draft.json")
    shutil.copy(lab.work / "draft/log.jsonl", lab.out / "draft.jsonl")


def differences(lab, dumped, count=4):
    """Largest and mean difference of torch's features from Strata's, as shares of the spread."""
    some = dumped.pick(list(range(min(count, len(dumped)))))
    got = features.fill(
        texts.Texts(some.ids, some.first, some.last, some.kinds),
        lab.target,
        dumped.layers,
        batch=count,
    ).features
    inside = torch.arange(some.ids.shape[1], device=some.last.device) < some.last.unsqueeze(-1)
    error = (got[inside].float() - some.features[inside].float()).abs()
    spread = some.features[inside].float().std()
    return {
        "mean": round((error.mean() / spread).item(), 6),
        "largest": (error.max() / spread).item(),
    }


def stage_mtp(lab):
    """The tuned layer goes back into the checkpoint with train_mtp.py --merge."""
    a = lab.args
    whole = lab.text("main", a.count, 1)
    part = lab.filled(whole.pick(list(range(min(len(whole), a.mtp_count)))), (0,), residual=True)
    pools = [part, lab.dumped(residual=True)[0] if a.dumped_residual else None]
    data = features.join([strip(p) for p in pools if p is not None])
    held = strip(lab.held((0,), residual=True))
    model = checkpoint.load(a.model).to(lab.device)
    run = train_mtp.Run(model, lab.work / "mtp", a.mtp_rate, lab.device)
    if run.step == 0:
        run.log(before=train_mtp.measure(model, held))
    train_mtp.train(run, data, held, a.mtp_seconds, a.steps, min(32, a.batch))
    run.log(after=train_mtp.measure(model, held))
    train_mtp.save_mtp(model, lab.out / "mtp.safetensors")
    shutil.copy(lab.work / "mtp/log.jsonl", lab.out / "mtp.jsonl")


def strip(part):
    part.features, part.layers = None, ()
    return part


def file_texts(lab, count):
    """Greedy text after prompts of --files: (training, held out)."""
    a, parts = lab.args, {False: [], True: []}
    tokenizer = a.tokenizer or Path(a.data) / "tokenizer.json"
    source = dump.file_jobs(a.files, tokenizer, a.kind, a.length, 3)
    while len(parts[False]) < count:
        job = next(source)
        parts[job[5]].append(job[0])
    out = []
    for held in (False, True):
        prompts = parts[held] or parts[False][:2]
        rows = np.zeros((len(prompts), a.length), dtype=np.int64)
        for row, prompt in zip(rows, prompts):
            row[: len(prompt)] = prompt
        n, sizes = len(rows), np.array([len(p) for p in prompts])
        ids = texts.own_text(
            lab.target, rows, sizes, np.zeros(n), np.full(n, 1.1), min(a.decode, n)
        )
        last = torch.full((n,), a.length)
        out.append(texts.Texts(ids, torch.from_numpy(sizes - 1), last, [a.kind] * n))
    return out


def stage_compare(lab):
    """Stock against tuned on --files, whose kind the draft was not trained on."""
    a = lab.args
    stock = dflash2.load(
        lab.work / "draft-model", lab.target.embed_tokens.weight, lab.target.lm_head.weight
    ).to(lab.device)
    taps = stock.config.target_layer_ids
    fresh, fresh_held = (lab.filled(t, taps) for t in file_texts(lab, a.compare_count))
    dumped, dumped_held = lab.dumped("dump-files")
    pools = [fresh] + ([dumped] if dumped is not None else [])
    sets = {a.kind: fresh_held, "others": lab.held(taps)}
    if dumped_held is not None:
        sets[a.kind + ", dumped"] = dumped_held
    recipe = lab.chosen()["recipe"]
    share = {"muon": recipe.get("muon", 0.02) * a.tune, "adam": recipe.get("adam", 1.0) * a.tune}
    recipe = train_draft.Recipe(**{**recipe, "batch": a.batch // 2, **share})
    shutil.rmtree(lab.work / "tuned", ignore_errors=True)
    run = train_draft.Run(copy.deepcopy(stock), recipe, lab.work / "tuned", lab.device)
    result = {"tokens": sum(p.tokens for p in pools), "dumped": dumped.tokens if dumped else 0}
    stock.dtype = run.model.dtype
    result["stock"] = {k: acceptance.measure(stock, t, brief=True) for k, t in sets.items()}
    train_draft.train(run, pools, fresh_held, 1.0, a.compare_seconds, a.steps, eval_every=30)
    result["tuned"] = {k: acceptance.measure(run.model, t, brief=True) for k, t in sets.items()}
    result["steps"] = run.step
    (lab.out / "compare.json").write_text(json.dumps(result, indent=1))
    lab.say("compare", **{k: result[k] for k in ("stock", "tuned")})


def parse(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="the target: GGUF or checkpoint folder")
    parser.add_argument("--data", required=True, help="packed data")
    parser.add_argument("--work", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--stages", required=True)
    parser.add_argument("--files", help="compare: a folder of text files")
    parser.add_argument("--kind", default="files")
    parser.add_argument("--tokenizer", help="for --files; the packed data's unless given")
    parser.add_argument("--rounded", action="store_true", help="the target in Q4_0 and Q8_0")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--count", type=int, default=16384, help="sequences of own text")
    parser.add_argument("--held", type=int, default=24, help="held-out sequences of each kind")
    parser.add_argument("--decode", type=int, default=2048, help="sequences decoded side by side")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=560, help="of this launch, all in")
    parser.add_argument("--reserve", type=float, default=30, help="of them, for the last measuring")
    parser.add_argument("--until", type=float, default=1.0)
    parser.add_argument("--steps", type=int, help="schedules in steps instead of seconds")
    parser.add_argument("--variants", default="width,gamma,alpha,rate,taps,data,gold,rank,whole")
    parser.add_argument("--choose-count", type=int, default=1536)
    parser.add_argument("--choose-seconds", type=float, default=16)
    parser.add_argument("--choose-steps", type=int)
    parser.add_argument("--mtp-count", type=int, default=4096)
    parser.add_argument("--mtp-seconds", type=float, default=100)
    parser.add_argument("--mtp-rate", type=float, default=0.25)
    parser.add_argument("--dumped-residual", action="store_true", help="the dump has .res files")
    parser.add_argument("--compare-count", type=int, default=1024)
    parser.add_argument("--compare-seconds", type=float, default=60)
    parser.add_argument("--tune", type=float, default=0.3, help="share of the learning rates")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--draft", type=json.loads, default={})
    parser.add_argument("--recipe", type=json.loads, default={})
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    lab = Lab(args)
    for stage in args.stages.split(","):
        lab.say(f"stage {stage}")
        globals()[f"stage_{stage}"](lab)
        if lab.device == "cuda":
            torch.cuda.empty_cache()
    lab.say("done")


if __name__ == "__main__":
    main()
