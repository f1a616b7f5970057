"""Trains or fine-tunes a DFlash2 draft on features of its target.

python train_draft.py --target DIR --dump DUMPS --run DIR --out DRAFT --seconds 600
python train_draft.py --target DIR --dump DUMPS --run DIR --out DRAFT --init STOCK    # fine-tune

Called again with the same --run it goes on from state.pt, exactly.
"""

import argparse
import dataclasses
import json
import math
import time

import torch
import torch.nn.functional as F

import acceptance
import checkpoint
import dflash2
import features
import texts as own
from muon import Muon
from saved_run import SavedRun

ADAM_RATE, CODEBOOK_RATE = 2e-3, 4e-3


@dataclasses.dataclass
class Recipe:
    """What dflash2.md section 5 leaves open; README.md says what settled each."""

    gamma: float = 7.0  # guess k weighs exp(-(k-1)/gamma)
    alpha: float = 1.0  # of the selector's loss
    detach: bool = False  # the selector's loss moves the selector alone
    gold: bool = False  # put the right token among the candidates where it is not
    muon: float = 0.02
    adam: float = 1.0  # times the rates above
    decay_from: float = 0.5
    warmup: float = 0.02
    whole: float = 0.4  # share of blocks of the full size; the others are of any smaller size
    anchors: int = 64  # blocks a sequence
    batch: int = 64  # sequences a step


def rate(progress, recipe):
    """Share of the full learning rate: warm-up, plateau, linear decay to 1 %."""
    if progress < recipe.decay_from:
        return min(1.0, (progress + 1e-3) / recipe.warmup)
    return max(0.01, (1 - progress) / (1 - recipe.decay_from))


def optimizers(model, recipe):
    matrices, codebooks, rest = [], [], []
    for name, p in model.named_parameters():
        if "codebook" in name:
            codebooks.append(p)
        elif p.dim() == 2 and "kernel_projection" not in name:
            matrices.append((name, p))
        else:
            rest.append(p)
    groups = [
        {"params": codebooks, "lr": CODEBOOK_RATE * recipe.adam},
        {"params": rest, "lr": ADAM_RATE * recipe.adam},
    ]
    adam = torch.optim.AdamW(
        groups, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, fused=model.head.is_cuda
    )
    both = [Muon(matrices, recipe.muon), adam]
    for optimizer in both:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return both


def sample_anchors(first, last, length, count, generator):
    """(anchors [B,count] in first..last-2 without repeats, which of them are real): a row that has
    fewer gives all it has.
    """
    position = torch.arange(length, device=first.device)
    allowed = (position >= first.unsqueeze(-1)) & (position < last.unsqueeze(-1) - 1)
    keys = torch.rand(len(first), length, generator=generator).to(first.device)
    keys, anchors = keys.masked_fill(~allowed, -1.0).topk(min(count, length), -1)
    return anchors, keys >= 0


def sample_sizes(shape, rows, whole, generator):
    """Rows of each block, 2 to `rows`: a draft of fewer guesses runs a smaller block, which is
    another computation.
    """
    sizes = torch.randint(2, rows + 1, shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < whole, rows, sizes)


def block_loss(model, recipe, taps, ids, last, anchors, real, sizes):
    """Losses of the blocks at `anchors`: (to minimise, unary, selector, share of covered rows)."""
    rows = model.config.block_size
    z = model(taps, anchors, ids.gather(1, anchors), rows, sizes)[:, :, 1:]
    guess = torch.arange(1, rows, device=ids.device)
    position = anchors.unsqueeze(-1) + guess
    inside = (position < last.view(-1, 1, 1)) & real.unsqueeze(-1) & (guess < sizes.unsqueeze(-1))
    position = position.clamp(max=ids.shape[1] - 1)
    flat = ids.gather(1, position.flatten(1)).view_as(position)
    before = ids.gather(1, (position - 1).flatten(1)).view_as(position)
    weight = inside * torch.exp(-(guess - 1) / recipe.gamma)
    total = weight.sum().clamp_min(1e-6)

    unary = model.unary(z)
    ce = F.cross_entropy(unary.flatten(0, 2), flat.flatten(), reduction="none").view_as(weight)
    candidates = unary.detach().topk(model.config.selector_top_k, -1).indices
    hit = candidates == flat.unsqueeze(-1)
    covered = hit.any(-1)
    if recipe.gold:
        end = torch.where(covered, candidates[..., -1], flat).unsqueeze(-1)
        candidates = torch.cat([candidates[..., :-1], end], -1)
        hit = candidates == flat.unsqueeze(-1)
    label = hit.to(torch.int8).argmax(-1)
    values = unary.gather(-1, candidates)
    if recipe.detach:
        z, values = z.detach(), values.detach()
    scores = model.candidate_selector.scores(z, values, before, candidates)
    selector = F.cross_entropy(scores.flatten(0, 2), label.flatten(), reduction="none")
    counted = weight if recipe.gold else weight * covered
    ce = (ce * weight).sum() / total
    selector = (selector.view_as(weight) * counted).sum() / total
    return ce + recipe.alpha * selector, ce, selector, (covered * weight).sum() / total


class Run(SavedRun):
    """Model, optimizers, step and progress of one training run, and its folder."""

    def __init__(self, model, recipe, folder, device, seed=0):
        self.recipe, self.seed = recipe, seed
        self.model = model.to(device)
        self.model.dtype = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
        super().__init__(self.model, optimizers(self.model, recipe), device, [folder])
        self.loss = block_loss
        self.restore()

    def one_step(self, pools):
        """Batch and anchors depend on seed and step alone, so going on is exact. Each step takes
        its sequences from one of the pools, larger ones more often.
        """
        g = torch.Generator().manual_seed(self.seed * 1000003 + self.step)
        sizes = torch.tensor([float(p.tokens) for p in pools])
        data = pools[int(torch.multinomial(sizes, 1, generator=g))]
        rows = torch.randint(len(data), (self.recipe.batch,), generator=g).to(data.ids.device)
        first, last = data.first[rows], data.last[rows]
        anchors, real = sample_anchors(first, last, data.ids.shape[1], self.recipe.anchors, g)
        taps = data.taps(self.model.config.target_layer_ids, rows)
        sizes = sample_sizes(anchors.shape, self.model.config.block_size, self.recipe.whole, g)
        batch = (t.to(self.device) for t in (taps, data.ids[rows], last, anchors, real, sizes))
        parts = self.loss(self.model, self.recipe, *batch)
        parts[0].backward()
        share = rate(self.progress, self.recipe)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return parts


def train(run, pools, held, until=1.0, seconds=600, steps=None, eval_every=60, save_every=120):
    """Up to a share of the schedule: spread over the wall clock up to `seconds` from now (compiling
    does not count), or over `steps` in all where that is given.
    """
    began, start, marked, first = time.time(), run.progress, time.time(), run.step
    marked_step, deadline = run.step, began + seconds
    next_eval, next_save = began + eval_every, began + save_every
    run.model.train()
    while run.progress < until:
        parts = run.one_step(pools)
        now = time.time()
        if run.step - first == 2:
            parts[0].item()
            began = marked = time.time()
        if steps:
            run.progress = run.step / steps
        elif run.step - first >= 2:
            share = (now - began) / max(1.0, deadline - began)
            run.progress = start + (until - start) * min(1.0, share)
        if run.step % 50 == 0:
            names = ("loss", "unary", "selector", "covered")
            values = {k: round(v.item(), 4) for k, v in zip(names, parts)}
            per_s = (run.step - marked_step) * run.recipe.batch * run.recipe.anchors
            run.log(**values, blocks_per_s=int(per_s / (time.time() - marked)))
            marked, marked_step = time.time(), run.step
        if now > next_eval and held is not None:
            run.log(held=acceptance.measure(run.model, held, brief=True))
            next_eval = time.time() + eval_every
        if now > next_save:
            run.save()
            next_save = time.time() + save_every
    run.save()


def new_draft(target, mask_token, args):
    values = {
        "vocab_size": target.config.vocab_size,
        "mask_token_id": mask_token,
        "num_target_layers": target.config.num_hidden_layers,
        "target_layer_ids": default_taps(target.config.num_hidden_layers),
        "hidden_size": target.config.hidden_size,
        "max_position_embeddings": target.config.max_position_embeddings,
        **args.draft,
    }
    values["target_layer_ids"] = tuple(values["target_layer_ids"])
    model = dflash2.DFlash2(
        dflash2.Draft(**values), target.embed_tokens.weight, target.lm_head.weight
    )
    model.initialize(args.seed)
    return model


def default_taps(layers, count=5):
    """Spread evenly; deep models start at 5 and end at layers - 3, as the public drafts do."""
    low, high = (5, layers - 3) if layers >= 12 else (0, layers - 1)
    count = min(count, high - low + 1)
    steps = [low + (high - low) * i / max(1, count - 1) for i in range(count)]
    return tuple(math.floor(s + 0.5) for s in steps)


def compile_loss():
    """block_loss compiled; plain where compiling fails."""
    torch._dynamo.config.automatic_dynamic_shapes = False
    compiled, state = torch.compile(block_loss), {}

    def loss(*values):
        if not state:
            try:
                compiled(*values)[0].backward()
                values[0].zero_grad(set_to_none=True)
                state["use"] = compiled
            except Exception as e:
                print(f"not compiled: {e!r:.2000}", flush=True)
                state["use"] = block_loss
        return state["use"](*values)

    return loss


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True, help="the target's checkpoint folder")
    parser.add_argument("--dump", action="append", default=[], help="folder of dump.py")
    parser.add_argument("--texts", action="append", default=[], help="texts.py's file")
    parser.add_argument("--run", required=True, help="folder of the run: state.pt and log.jsonl")
    parser.add_argument("--out", required=True, help="where the draft's checkpoint goes")
    parser.add_argument("--init", help="a draft to start from instead of random weights")
    parser.add_argument("--until", type=float, default=1.0, help="share of the schedule to reach")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--steps", type=int, help="a schedule in steps instead of seconds")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--draft", type=json.loads, default={}, help="JSON: shape of a new draft")
    parser.add_argument("--recipe", type=json.loads, default={}, help="JSON: overrides of Recipe")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    target = checkpoint.load(args.target).to(device)
    if args.init:
        model = dflash2.load(args.init, target.embed_tokens.weight, target.lm_head.weight)
    else:
        mask = own.control({"eos_token_id": target.config.eos_token_id}, "<|dflash_mask|>")
        model = new_draft(target, args.draft.pop("mask_token_id", mask), args)
    data, held = [], []
    for folder in args.dump:
        train_part, held_part = features.read_dumps(folder, args.length)
        data += [train_part] if train_part is not None else []
        held += [held_part] if held_part is not None else []
    for path in args.texts:
        data.append(features.fill(own.load(path), target, model.config.target_layer_ids))
    pools = [d.to(device) for d in data]
    held = features.join(held).to(device) if held else None
    run = Run(model, Recipe(**args.recipe), args.run, device, args.seed)
    run.loss = compile_loss() if args.compile else block_loss
    parameters = sum(p.numel() for p in model.parameters())
    run.log(parameters=parameters, sequences=sum(len(p) for p in pools))
    if held is not None:
        run.log(held=acceptance.measure(model, held, brief=True))
    train(run, pools, held, args.until, args.seconds, args.steps)
    if held is not None:
        run.log(held=acceptance.measure(model, held))
    dflash2.save(model, args.out)
    return run


if __name__ == "__main__":
    main()
