"""What a drafter is trained on: tokens with the target's features, as Strata dumps them
(docs/commands.md, "Dumping features") or as torch computes them from the same checkpoint.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch


@dataclasses.dataclass
class Texts:
    """N sequences of up to T tokens. Anchors and labels lie in first..last-1; rows past `last` are
    padding. `features` [N, T, layers, hidden] and `residual` [N, T, streams * hidden] in half
    precision, or None.
    """

    ids: torch.Tensor  # int64 [N, T]
    first: torch.Tensor  # int64 [N]
    last: torch.Tensor  # int64 [N]
    kinds: list
    layers: tuple = ()
    features: torch.Tensor = None
    residual: torch.Tensor = None

    def __len__(self):
        return len(self.ids)

    @property
    def tokens(self):
        return int((self.last - self.first).sum())

    def pick(self, rows):
        """The sequences of a list or index tensor."""
        rows = torch.as_tensor(rows, device=self.ids.device)
        part = [None if t is None else t[rows] for t in (self.features, self.residual)]
        kinds = [self.kinds[i] for i in rows.tolist()]
        return Texts(self.ids[rows], self.first[rows], self.last[rows], kinds, self.layers, *part)

    def taps(self, layers, rows=slice(None)):
        """[n, T, len(layers) * hidden] of some of the layers held."""
        missing = [t for t in layers if t not in self.layers]
        if missing:
            raise ValueError(f"layers {missing} are wanted, the rows hold {list(self.layers)}")
        at = [self.layers.index(t) for t in layers]
        features = self.features[rows]
        return (features if at == list(range(len(self.layers))) else features[:, :, at]).flatten(2)

    def to(self, device):
        moved = [
            None if t is None else t.to(device)
            for t in (self.ids, self.first, self.last, self.features, self.residual)
        ]
        return Texts(*moved[:3], self.kinds, self.layers, *moved[3:])


def join(parts):
    """One Texts of several that hold the same layers; shorter ones are padded."""
    length = max(p.ids.shape[1] for p in parts)

    def stack(tensors):
        if any(t is None for t in tensors):
            return None
        shape = (sum(len(t) for t in tensors), length, *tensors[0].shape[2:])
        out, at = tensors[0].new_zeros(shape), 0
        for t in tensors:
            out[at : at + len(t), : t.shape[1]] = t
            at += len(t)
        return out

    return Texts(
        stack([p.ids for p in parts]),
        torch.cat([p.first for p in parts]),
        torch.cat([p.last for p in parts]),
        sum((p.kinds for p in parts), []),
        parts[0].layers,
        stack([p.features for p in parts]),
        stack([p.residual for p in parts]),
    )


def _pieces(index, notes, length, shortest):
    """(first row, rows, tokens of them that were given, kind) of pieces of up to `length` rows."""
    if notes is None:
        breaks = np.flatnonzero(np.diff(index[:, 0], prepend=-2) != 1).tolist() + [len(index)]
        notes = [
            {"row": a, "rows": b - a, "prompt": 0, "kind": "dump"}
            for a, b in zip(breaks, breaks[1:])
        ]
    for note in notes:
        end = min(note["row"] + note["rows"], len(index))
        for at in range(note["row"], end, length):
            count = min(length, end - at)
            if count >= shortest:
                given = min(count, max(0, note["prompt"] - (at - note["row"])))
                yield at, count, given, note["kind"]


def read_dump(prefix, length=1024, notes=None, residual=False, shortest=16):
    """The sequences of PREFIX.idx, .f16, .json (and .res), cut into pieces of up to `length` rows.

    `notes` says where each sequence is and how many of its tokens were given, not generated (as
    dump.py notes it); without them a sequence starts where the position does not go on.
    """
    about = json.loads(Path(f"{prefix}.json").read_text())
    layers, hidden = tuple(about["layers"]), about["hidden"]
    wide = {"f16": len(layers) * hidden, "res": about["streams"] * hidden}
    index = np.fromfile(f"{prefix}.idx", dtype="<i4")
    index = index[: len(index) // 2 * 2].reshape(-1, 2)
    rows = {}
    for end in ["f16", "res"] if residual else ["f16"]:
        values = np.memmap(f"{prefix}.{end}", dtype="<f2", mode="r")
        rows[end] = values[: len(values) // wide[end] * wide[end]].reshape(-1, wide[end])
        index = index[: len(rows[end])]  # a run that was killed may leave a row unfinished
    pieces = list(_pieces(index, notes, length, shortest))
    texts = Texts(
        torch.zeros(len(pieces), length, dtype=torch.int64),
        torch.tensor([max(0, p[2] - 1) for p in pieces], dtype=torch.int64),
        torch.tensor([p[1] for p in pieces], dtype=torch.int64),
        [p[3] for p in pieces],
        layers,
        torch.zeros(len(pieces), length, len(layers), hidden, dtype=torch.float16),
        torch.zeros(len(pieces), length, wide["res"], dtype=torch.float16) if residual else None,
    )
    for n, (at, count, _, _) in enumerate(pieces):
        texts.ids[n, :count] = torch.from_numpy(index[at : at + count, 1].astype(np.int64))
        part = torch.from_numpy(np.array(rows["f16"][at : at + count]))
        texts.features[n, :count] = part.unflatten(-1, (len(layers), hidden))
        if residual:
            texts.residual[n, :count] = torch.from_numpy(np.array(rows["res"][at : at + count]))
    return texts


def read_dumps(folder, length=1024, residual=False):
    """All that dump.py left in a folder: (training, held out). Either may be None."""
    parts = {False: [], True: []}
    for file in sorted(Path(folder).glob("*.jsonl")):
        notes = [json.loads(line) for line in file.read_text().splitlines()]
        for held in (False, True):
            some = [n for n in notes if n["held"] == held]
            if some:
                parts[held].append(read_dump(file.with_suffix(""), length, some, residual))
    return tuple(join(parts[held]) if parts[held] else None for held in (False, True))


@torch.no_grad()
def fill(texts, model, layers, residual=False, batch=64):
    """Computes the features (and the residual) of `texts` with the torch model, on its device."""
    device, c = model.embed_tokens.weight.device, model.config
    shape = texts.ids.shape
    out = torch.zeros(*shape, len(layers), c.hidden_size, dtype=torch.float16, device=device)
    res = None
    if residual:
        wide = c.hc_count * c.hidden_size
        res = torch.zeros(*shape, wide, dtype=torch.float16, device=device)
    limit = torch.finfo(torch.float16).max
    for at in range(0, len(texts), batch):
        means = []
        ids = texts.ids[at : at + batch].to(device)
        r, _, _ = model.trunk(ids, means)
        for i, layer in enumerate(layers):
            out[at : at + batch, :, i] = means[layer].clamp(-limit, limit).half()
        if residual:
            res[at : at + batch] = r.clamp(-limit, limit).half()
    texts.layers, texts.features, texts.residual = tuple(layers), out, res
    return texts
