"""How far a draft's guesses agree with texts of its target: what a greedy verifier would accept.

The texts are the target's own, so a guess is accepted where it is the text's next token.
"""

import torch

FLOORS = (0.0, 0.5, 0.75)


@torch.no_grad()
def guesses(model, texts, rows=None, chunk=64, batch=8):
    """(accepted [N,T]: leading right guesses of the block at each anchor, -1 where none was asked
    for; confidence [N,T,b-1]; found [N,T,b-1]: the right token is a candidate), on the CPU.
    """
    rows, device = rows or model.config.block_size, model.head.device
    n, length = texts.ids.shape
    accepted = torch.full((n, length), -1)
    confidence = torch.zeros(n, length, rows - 1)
    found = torch.zeros(n, length, rows - 1, dtype=torch.bool)
    step = torch.arange(1, rows)
    for at in range(0, n, batch):
        ids, first, last = (t[at : at + batch].cpu() for t in (texts.ids, texts.first, texts.last))
        taps = texts.taps(model.config.target_layer_ids, slice(at, at + batch)).to(device)
        for start in range(int(first.min()), length - rows, chunk):
            anchors = torch.arange(start, min(start + chunk, length - rows)).expand(len(ids), -1)
            tokens = ids.gather(1, anchors).to(device)
            path, sure, candidates, _, _ = model.walk(taps, anchors.to(device), tokens, rows)
            want = ids.gather(1, (anchors.unsqueeze(-1) + step).flatten(1)).view(*path.shape)
            right = (path.cpu() == want).long().cumprod(-1).sum(-1)
            asked = (anchors >= first.unsqueeze(-1)) & (anchors + rows <= last.unsqueeze(-1))
            part = (slice(at, at + batch), slice(start, start + anchors.shape[1]))
            accepted[part] = torch.where(asked, right, -1)
            confidence[part] = sure.cpu()
            found[part] = (candidates.cpu() == want.unsqueeze(-1)).any(-1)
    return accepted, confidence, found


def windows(accepted, confidence, floor, most):
    """Walks each text as a verifier does, with `most` guesses a window at a confidence floor:
    (windows, tokens, guesses offered).
    """
    offer = (confidence[..., :most] >= floor).long().cumprod(-1).sum(-1)
    kept = torch.minimum(offer, accepted)
    count = tokens = offered = 0
    for row, given in zip(kept.tolist(), offer.tolist()):
        at = next((i for i, a in enumerate(row) if a >= 0), len(row))
        while at < len(row) and row[at] >= 0:
            count, tokens, offered = count + 1, tokens + row[at] + 1, offered + given[at]
            at += row[at] + 1
    return count, tokens, offered


def measure(model, texts, brief=False, rows=None):
    """Per kind and for all, with blocks of `rows`: tokens a window at several floors, share of
    windows whose first k guesses are right, share of rows whose right token is a candidate.
    """
    was = model.training
    model.eval()
    accepted, confidence, found = guesses(model, texts, rows)
    model.train(was)
    out, most = {}, confidence.shape[-1]
    for kind in ["all", *([] if brief else sorted(set(texts.kinds)))]:
        some = [i for i, k in enumerate(texts.kinds) if kind in ("all", k)]
        part, asked = accepted[some], accepted[some] >= 0
        if not asked.any():
            continue
        by_position = [(part[asked] >= k).float().mean().item() for k in range(1, most + 1)]
        value = {"accepted": [round(x, 4) for x in by_position]}
        for floor in FLOORS:
            count, tokens, offered = windows(part, confidence[some], floor, most)
            value[f"tokens_per_window_{floor}"] = round(tokens / max(1, count), 3)
            value[f"offered_{floor}"] = round(offered / max(1, count), 3)
        if not brief:
            value["candidates"] = [round(x, 4) for x in found[some][asked].float().mean(0).tolist()]
        out[kind] = value
    return out["all"] if brief else out
