"""Trains the target and its MTP layer. The schedule is a share of the whole run, so any run ends
with a decayed rate.

python train.py --data DIR --run DIR --until 0.5 --seconds 560     # the first half of the schedule
python train.py --data DIR --run DIR --until 1.0 --seconds 540     # resumes, and finishes it
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import pack
import ship
from attention import SparseAttention
from config import Config
from data import Windows
from model import Model
from muon import optimizers
from saved_run import SavedRun

WARMUP, DENSE_UNTIL, DECAY_FROM, QUANTIZE_FROM = 0.01, 0.12, 0.4, 0.85
BALANCE, INDEX, MTP_SECOND = 0.01, 0.1, 0.5


def rate(progress):
    """Share of the full learning rate: warm-up, plateau, linear decay to 1 %."""
    if progress < DECAY_FROM:
        return min(1.0, (progress + 1e-4) / WARMUP)
    return max(0.01, (1 - progress) / (1 - DECAY_FROM))


def head_loss(mixer, weight, r, target):
    logits = F.linear(mixer(r), weight.to(r.dtype)).float()
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def losses(model, ids, second, head=head_loss):
    """ids [B, T+3] -> (loss to minimise, its parts). The MTP layer learns beside the trunk, never
    through it.
    """
    length = ids.shape[1] - 3
    r, balance, index = model.trunk(ids[:, :length])
    trunk = head(model.hyper_connection_mixer, model.lm_head.weight, r, ids[:, 1 : length + 1])
    parts, r = {"loss": trunk}, r.detach()
    total, mtp_head = trunk, model.lm_head.weight.detach()
    for depth in range(1, 3 if second else 2):
        r, b, i = model.mtp_step(r, ids[:, depth : length + depth])
        guess = head(
            model.mtp.hyper_connection_mixer, mtp_head, r, ids[:, depth + 1 : length + depth + 1]
        )
        total = total + guess * (MTP_SECOND if depth == 2 else 1)
        balance, index, parts[f"mtp{depth}"] = balance + b, index + i, guess
    parts["balance"], parts["index"] = balance, index
    return total + BALANCE * balance + INDEX * index, parts


class Run(SavedRun):
    """Model, optimizers, step and progress of one training run, and its folder."""

    def __init__(self, args, config):
        self.args = args
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = Model(config)
        self.model.initialize(args.seed)
        self.model.to(device)
        self.model.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        folders = [folder for folder in (args.run, args.out) if folder]
        super().__init__(self.model, optimizers(self.model, args.muon_lr), device, folders)
        if args.parts:
            ship.read_parts(self.model, args.parts)
            self.progress, self.step = args.parts_progress, args.parts_step
        self.restore()

    def set_schedule(self):
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * rate(self.progress)
        self.model.dense.fill_(self.progress < DENSE_UNTIL)
        self.model.quantized.fill_(float(self.progress >= QUANTIZE_FROM))


@torch.no_grad()
def heldout_loss(model, ids, length, batch, limit):
    """Mean losses (nats a token) over the first windows of the held-out text, without compiled
    code.
    """
    windows = ids[: (len(ids) - 3) // length * length].view(-1, length)[:limit]
    sums, count = {}, 0
    with torch.compiler.set_stance("force_eager"):
        for i in range(0, len(windows) - 1, batch):
            rows = windows[i : i + batch]
            follow = ids[
                (torch.arange(len(rows), device=ids.device) + i + 1).unsqueeze(-1) * length
                + torch.arange(3, device=ids.device)
            ]
            _, parts = losses(model, torch.cat([rows, follow], 1).long(), True)
            for k, v in parts.items():
                sums[k] = sums.get(k, 0) + v.item() * len(rows)
            count += len(rows)
    return {"held_" + k: round(v / count, 4) for k, v in sums.items()}


def load_data(args, device):
    train, held, info = pack.load(args.data)
    ids = torch.from_numpy(train.astype(np.int32)).to(device)
    chats = torch.tensor(info["train"]["chat_starts"], device=device)
    return Windows(ids, chats, args.length + 3, args.batch, args.seed), torch.from_numpy(
        held.astype(np.int32)
    ).to(device)


def train(run, windows, held, deadline):
    args, model = run.args, run.model
    model.train()
    SparseAttention.index_rows = max(1, args.batch // 8)
    head = head_loss
    if args.compile:
        torch._dynamo.config.automatic_dynamic_shapes = False
        torch._dynamo.config.recompile_limit = 32
        head = torch.compile(head_loss)
        for layer in [*model.layers, *model.mtp.layers]:
            layer.compile()
    began, first, tokens, start_progress = None, run.step, 0, run.progress
    marked, next_eval = None, time.time() + args.eval_every
    while run.progress < args.until and time.time() < deadline and run.step - first < args.steps:
        run.set_schedule()
        loss, parts = losses(model, windows(run.step), run.step % 2 == 1, head)
        loss.backward()
        for optimizer in run.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        run.step += 1
        tokens += args.batch * args.length
        if run.step - first == 2:  # both step kinds are compiled: progress counts from here
            parts["loss"].item()
            began, tokens, marked = time.time(), 0, time.time()
            run.log(compiled_s=round(began - args.launched, 1))
        if began and run.step % args.log_every == 0:
            values = {k: round(v.item(), 4) for k, v in parts.items()}
            now = time.time()
            run.log(
                **values,
                tokens_per_s=int(tokens / (now - marked)),
                lr=round(rate(run.progress), 4),
                t=round(now - args.launched, 1),
            )
            tokens, marked = 0, now
            if now > next_eval:
                run.log(
                    **heldout_loss(model, held, args.length, args.batch // 2, args.eval_windows)
                )
                marked, next_eval = time.time(), time.time() + args.eval_every
        if began:
            share = (time.time() - began) / max(deadline - began, 1e-9)
            run.progress = start_progress + (args.until - start_progress) * min(1.0, share)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--run", required=True, help="folder of the run: state.pt and log.jsonl")
    parser.add_argument("--out", help="also put the log and the weights in parts here")
    parser.add_argument("--until", type=float, default=1.0, help="share of the schedule to reach")
    parser.add_argument(
        "--seconds", type=float, default=600, help="wall-clock seconds of this launch, all in"
    )
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--eval-every", type=float, default=60, help="seconds")
    parser.add_argument("--eval-windows", type=int, default=128)
    parser.add_argument("--parts", help="start from weights in parts instead of random ones")
    parser.add_argument("--parts-progress", type=float, default=0.0)
    parser.add_argument("--parts-step", type=int, default=0)
    parser.add_argument(
        "--config", type=json.loads, default={}, help="JSON overrides of config.py's defaults"
    )
    args = parser.parse_args(argv)
    args.launched = time.time()
    return args


def main(argv=None):
    args = parse(argv)
    torch.set_float32_matmul_precision("high")
    vocab = json.loads((Path(args.data) / "pack.json").read_text())["vocab"]
    run = Run(args, Config(**{**vocab, **args.config}))
    windows, held = load_data(args, run.device)
    run.log(
        parameters=sum(p.numel() for p in run.model.parameters()), train_tokens=len(windows.ids)
    )
    train(run, windows, held, args.launched + args.seconds)
    run.log(
        **heldout_loss(run.model, held, args.length, max(1, args.batch // 2), args.eval_windows)
    )
    run.save()
    if args.out:
        ship.write_parts(run.model, args.out, exact=run.progress >= 1.0)
    return run


if __name__ == "__main__":
    main()
