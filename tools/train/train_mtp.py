"""Fine-tunes the target's MTP layer on dumped residuals: chained guesses, each seeing what it will
see when served.

python train_mtp.py --target DIR --dump DUMPS --run DIR --out mtp.safetensors --seconds 120
python train_mtp.py --target DIR --merge mtp.safetensors --out DIR      # into a whole checkpoint

Called again with the same --run it goes on from state.pt.
"""

import argparse
import shutil
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import checkpoint
import features
import texts as own
from attention import rope_tables, rotate
from model import write
from muon import optimizers
from saved_run import SavedRun

WEIGHTS = (1.0, 0.7, 0.5)  # of the first, second and third guess


def shifted(rope, by, length):
    return tuple(t[by : by + length] for t in rope)


def attend(attention, x, rope, cells):
    """Chained cells: row i sees the layer's own cells (cells[0]) 0..i by the index's choice, the
    chain's cells before it at row i, and itself. Returns (output, its own key and value).
    """
    m, length = attention, x.shape[1]
    q, gate = m.q_proj(x).unflatten(-1, (m.heads, -1)).chunk(2, -1)
    k, v = m.k_proj(x).unflatten(-1, (m.kv, -1)), m.v_proj(x).unflatten(-1, (m.kv, -1))
    q, k = rotate(m.q_norm(q), rope), rotate(m.k_norm(k), rope)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(m.heads // m.kv, 1) for t in (k, v))
    trunk_k, trunk_v, blocks = cells[0]
    position = torch.arange(length, device=x.device)
    done = (position + 1) // m.ratio
    index = m.indexer
    both = index.index_qk_proj(x.detach()).float().unflatten(-1, (index.heads + 1, -1))
    iq = rotate(index.q_layernorm(both[:, :, : index.heads]), rope)
    chosen = m.select(torch.relu(torch.einsum("bthd,bnd->bhtn", iq, blocks)).sum(1), done)
    tokens = F.pad(chosen.repeat_interleave(m.ratio, -1), (0, length % m.ratio))
    seen = (tokens | (position >= (done * m.ratio).unsqueeze(-1))) & (
        position <= position.unsqueeze(-1)
    )
    scale = m.dim**-0.5
    logits = (q @ trunk_k.mT * scale).float().masked_fill(~seen.unsqueeze(1), float("-inf"))
    chain = [*cells[1:], (k, v)]
    extra = torch.stack([(q * key).sum(-1).float() * scale for key, _ in chain], -1)
    p = torch.cat([logits, extra], -1).softmax(-1).to(q.dtype)
    o = p[..., :length] @ trunk_v
    for n, (_, value) in enumerate(chain):
        o = o + p[..., length + n, None] * value
    return m.o_proj((o.transpose(1, 2) * torch.sigmoid(gate)).flatten(-2)), (k, v)


def trunk_cells(attention, x, rope):
    """Keys, values and block keys of the first guess's cells."""
    m, index = attention, attention.indexer
    k = rotate(m.k_norm(m.k_proj(x).unflatten(-1, (m.kv, -1))), rope).transpose(1, 2)
    v = m.v_proj(x).unflatten(-1, (m.kv, -1)).transpose(1, 2)
    k, v = (t.repeat_interleave(m.heads // m.kv, 1) for t in (k, v))
    count = x.shape[1] // m.ratio
    both = index.index_qk_proj(x.detach()).float().unflatten(-1, (index.heads + 1, -1))
    mean = both[:, : count * m.ratio, index.heads].unflatten(1, (count, m.ratio)).mean(2)
    starts = tuple(t[: count * m.ratio : m.ratio] for t in rope)
    return k, v, rotate(index.k_layernorm(mean).unsqueeze(2), starts).squeeze(2)


def guess_losses(model, residual, ids, last, first, depth):
    """Losses of the chained guesses. residual [B,T,wide] of the trunk, ids [B,T]; labels lie in
    first+1..last-1. Returns (to minimise, [loss of each depth]).
    """
    layer, length = model.mtp.layers[0], ids.shape[1] - depth
    rope = rope_tables(model.config, ids.shape[1], ids.device)
    position = torch.arange(length, device=ids.device)
    r, cells, out, extra = residual[:, :length].to(model.dtype), [], [], 0.0
    for n in range(depth):
        at = shifted(rope, n, length)
        joined = model.mtp.join(r, model.embed(ids[:, n + 1 : n + 1 + length]))
        x, inject = layer.attn_hyper_connection(joined)
        if n == 0:
            cells.append(trunk_cells(layer.self_attn, x, at))
            y, index_loss = layer.self_attn(x, at, model.dense)
            extra = extra + 0.1 * index_loss
        else:
            y, cell = attend(layer.self_attn, x, at, cells)
            cells.append(cell)
        r = write(joined, y, inject)
        x, inject = layer.mlp_hyper_connection(r)
        y, balance = layer.mlp(x, model.quantized)
        r, extra = write(r, y, inject), extra + 0.01 * balance
        label_at = position + n + 2
        if n + 2 + length > ids.shape[1]:
            label_at = label_at.clamp(max=ids.shape[1] - 1)
        inside = (position + n + 2 < last.unsqueeze(-1)) & (position >= first.unsqueeze(-1) - 1)
        ce = F.cross_entropy(
            model.mtp_logits(r).flatten(0, 1).float(), ids[:, label_at].flatten(), reduction="none"
        )
        out.append((ce.view(inside.shape) * inside).sum() / inside.sum().clamp_min(1))
    return sum(w * loss for w, loss in zip(WEIGHTS, out)) + extra, out


@torch.no_grad()
def chain_acceptance(model, texts, depth=3, points=6, batch=32):
    """Share of contexts whose first k chained guesses are the text, computed as served: whole
    passes over the cells, at some positions of each text.
    """
    device = model.embed_tokens.weight.device
    hits, tried = [0] * depth, 0
    for n in torch.linspace(0, texts.ids.shape[1], points + 2).long().tolist()[1:-1]:
        usable = (texts.first < n) & (n + depth < texts.last)
        rows = usable.nonzero().flatten().tolist()
        for at in range(0, len(rows), batch):
            some = texts.pick(rows[at : at + batch])
            ids = some.ids.to(device)
            cells = some.residual[:, :n].to(device).to(model.dtype)
            following = ids[:, 1 : n + 1]
            good = torch.ones(len(ids), dtype=torch.bool, device=device)
            for k in range(depth):
                r, _, _ = model.mtp_step(cells, following)
                guess = model.mtp_logits(r[:, -1:]).argmax(-1)
                good &= guess[:, 0] == ids[:, n + 1 + k]
                hits[k] += good.sum().item()
                cells, following = torch.cat([cells, r[:, -1:]], 1), torch.cat(
                    [following, guess], 1
                )
            tried += len(ids)
    return {"accepted": [round(h / max(1, tried), 4) for h in hits], "contexts": tried}


class Run(SavedRun):
    key = "mtp"

    def __init__(self, model, folder, rate, device):
        self.model = model
        model.requires_grad_(False)
        model.mtp.requires_grad_(True)
        model.train()
        model.quantized.fill_(1.0)  # the shipped file keeps its experts in Q4_0
        super().__init__(model.mtp, optimizers(model.mtp, 0.02 * rate, rate), device, [folder])
        self.restore()


def train(run, data, held, seconds, steps=None, batch=32, depth=3, seed=0, eval_every=45):
    model, began, start = run.model, time.time(), run.progress
    model.mtp.layers[0].self_attn.index_rows = max(1, batch // 8)
    next_eval = began + eval_every
    while run.progress < 1.0:
        g = torch.Generator().manual_seed(seed * 1000003 + run.step)
        rows = torch.randint(len(data), (batch,), generator=g).to(data.ids.device)
        part = (t[rows].to(run.device) for t in (data.residual, data.ids, data.last, data.first))
        loss, parts = guess_losses(model, *part, depth)
        loss.backward()
        share = min(1.0, (run.progress + 1e-3) / 0.05) * max(0.01, 1 - run.progress)
        for optimizer in run.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        run.step += 1
        now = time.time()
        done = run.step / steps if steps else start + (1 - start) * (now - began) / seconds
        run.progress = min(1.0, done)
        if run.step % 50 == 0:
            run.log(losses=[round(p.item(), 4) for p in parts], t=round(now - began, 1))
        if now > next_eval and held is not None:
            run.log(held=measure(model, held))
            run.save()
            next_eval = time.time() + eval_every
    run.save()


def measure(model, held):
    """Chained acceptance, without the training's shortcuts."""
    rows = model.mtp.layers[0].self_attn.index_rows
    model.mtp.layers[0].self_attn.index_rows = 0
    model.eval()
    out = chain_acceptance(model, held)
    model.train()
    model.mtp.layers[0].self_attn.index_rows = rows
    return out


def save_mtp(model, path):
    tensors = checkpoint.public_tensors(model)
    save_file({k: v for k, v in tensors.items() if k.startswith("mtp.")}, path)


def merge(source, mtp, out):
    """The checkpoint in `source` with the tensors of `mtp` in place of its own."""
    source, out = Path(source), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors, fresh = load_file(source / "model.safetensors"), load_file(mtp)
    strange = {k for k in fresh if k not in tensors or tensors[k].shape != fresh[k].shape}
    if strange:
        raise ValueError(f"{sorted(strange)}: not tensors of {source}, or of another shape there")
    tensors.update(fresh)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    for file in source.glob("*.json"):
        shutil.copy(file, out / file.name)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--merge", help="the tensors of a finished run")
    parser.add_argument("--dump", action="append", default=[], help="dump.py's folder (--residual)")
    parser.add_argument("--texts", action="append", default=[], help="texts.py's file")
    parser.add_argument("--run")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rate", type=float, default=0.25, help="of the rates of train.py")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    if args.merge:
        return merge(args.target, args.merge, args.out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    model = checkpoint.load(args.target).to(device)
    data, held = [], []
    for folder in args.dump:
        for part, into in zip(features.read_dumps(folder, args.length, True), (data, held)):
            into += [part] if part is not None else []
    for path in args.texts:
        data.append(features.fill(own.load(path), model, (0,), residual=True))
    for part in data:  # this layer reads the residual alone
        part.features, part.layers = None, ()
    data = features.join([d.to(device) for d in data])
    held = features.join(held).to(device) if held else None
    run = Run(model, args.run, args.rate, device)
    if held is not None and run.step == 0:
        run.log(before=measure(model, held))
    train(run, data, held, args.seconds, args.steps, args.batch)
    if held is not None:
        run.log(after=measure(model, held))
    save_mtp(model, args.out)
    return run


if __name__ == "__main__":
    main()
