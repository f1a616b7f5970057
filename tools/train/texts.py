"""Texts to train a drafter on: prompts from the packed data, continued by the target itself.

python texts.py --model DIR --data DIR --out FILE.npz --count 2048      # torch's decoder, one GPU

Own text is what a drafter meets when it is served. A share of the sequences is teacher-forced:
the packed text as it stands.
"""

import argparse
import time

import numpy as np
import torch

import checkpoint
import pack
from decode import Decoder
from features import Texts
from tokenizer import ORDER

# (name, share, temperatures, repetition penalties): the bundled model's file says penalty 1.1
MODES = (
    ("greedy", 0.4, (0.0, 0.0), (1.1,)),
    ("plain", 0.15, (0.0, 0.0), (1.0,)),
    ("sampled", 0.25, (0.4, 1.0), (1.0, 1.1)),
    ("forced", 0.2, None, None),
)
CHAT_SHARE = 0.2


def chat_prompt(ids, turn_start, think_end):
    """Tokens up to where the first answer begins, or 0: after the (empty) thoughts, two tokens."""
    at = np.flatnonzero(ids[:256] == think_end)
    return int(at[0]) + 2 if len(at) and ids[0] == turn_start else 0


def control(vocab, name):
    """Id of a control token: they end the vocabulary, <|endoftext|> first."""
    return vocab["eos_token_id"] + ORDER.index(name)


def train_prompts(data, count, length, seed, longest=384):
    """(ids [count, length] of the text as it stands, prompt lengths): chats, starts of documents,
    and anywhere.
    """
    ids, _, info = pack.load(data)
    vocab, rng = info["vocab"], np.random.default_rng(seed)
    limit = len(ids) - length - 1
    documents = np.flatnonzero(ids == vocab["eos_token_id"]) + 1
    chats = np.array(info["train"]["chat_starts"])
    documents = np.setdiff1d(documents, chats)
    chats, documents = chats[chats < limit], documents[documents < limit]
    starts = rng.integers(0, limit, count)
    starts[1::3] = rng.choice(documents, len(starts[1::3]))
    if len(chats):
        chat = rng.random(count) < CHAT_SHARE
        starts[chat] = rng.choice(chats, chat.sum())
    rows = np.stack([ids[s : s + length] for s in starts]).astype(np.int64)
    prompt = np.minimum(rng.integers(8, longest, count), length // 2)
    for i, row in enumerate(rows):
        found = chat_prompt(row, control(vocab, "<|im_start|>"), control(vocab, "</think>"))
        prompt[i] = min(found or prompt[i], length - 2)
    return rows, prompt


def heldout_prompts(data, each, length, seed, prompt=96):
    """The same from held-out documents, `each` of every kind, and the kinds."""
    _, ids, info = pack.load(data)
    vocab, rng = info["vocab"], np.random.default_rng(seed)
    rows, prompts, kinds = [], [], []
    for kind in sorted({span[2] for span in info["heldout"]["spans"]}):
        spans = [s for s in info["heldout"]["spans"] if s[2] == kind and s[0] + length < len(ids)]
        for n in rng.permutation(len(spans)).repeat(1 + each // max(1, len(spans)))[:each]:
            start, end = spans[n][:2]
            if kind != "chat" and end - start > 2 * prompt:
                start = int(rng.integers(start, end - prompt))
            start = min(start, len(ids) - length - 1)
            row = ids[start : start + length].astype(np.int64)
            found = chat_prompt(row, control(vocab, "<|im_start|>"), control(vocab, "</think>"))
            rows.append(row)
            prompts.append(min(found or prompt, length // 2))
            kinds.append(kind)
    return np.stack(rows), np.array(prompts), kinds


def settings(count, rng, modes=MODES):
    """(mode index, temperature, penalty) of each sequence."""
    shares = np.array([m[1] for m in modes])
    mode = rng.choice(len(modes), count, p=shares / shares.sum())
    temperature, penalty = np.zeros(count), np.ones(count)
    for i, m in enumerate(mode):
        if modes[m][2]:
            temperature[i] = rng.uniform(*modes[m][2])
            penalty[i] = rng.choice(modes[m][3])
    return mode, temperature, penalty


def own_text(model, rows, prompt, temperature, penalty, batch):
    """rows [N, length] after their prompts replaced by what the target says; int64 on the CPU."""
    out, decoder = [], Decoder(model, batch, rows.shape[1])
    for at in range(0, len(rows), batch):
        part = slice(at, at + batch)
        values = [torch.from_numpy(a[part]) for a in (rows, prompt, temperature, penalty)]
        short = batch - len(values[0])
        values = [torch.cat([v, v[:1].expand(short, *v.shape[1:])]) for v in values]
        done = decoder.run(*(v.to(decoder.device) for v in values))
        out.append(done[: batch - short].cpu())
    return torch.cat(out)


def generate(model, data, count, length, seed, batch, modes=MODES):
    """`count` training sequences: Texts without features, kinds named by mode."""
    torch.manual_seed(seed)
    rows, prompt = train_prompts(data, count, length, seed)
    mode, temperature, penalty = settings(count, np.random.default_rng(seed + 1), modes)
    forced = np.array([modes[m][2] is None for m in mode])
    ids = torch.from_numpy(rows)
    run = np.flatnonzero(~forced)
    if len(run):
        ids[run] = own_text(model, rows[run], prompt[run], temperature[run], penalty[run], batch)
    first = np.where(forced, 0, np.maximum(prompt - 1, 0))
    last = torch.full((count,), length)
    return Texts(ids, torch.from_numpy(first), last, [modes[m][0] for m in mode])


def generate_heldout(model, data, each, length, seed, batch, temperature=0.0, penalty=1.1):
    rows, prompt, kinds = heldout_prompts(data, each, length, seed)
    n = len(rows)
    ids = own_text(model, rows, prompt, np.full(n, temperature), np.full(n, penalty), min(batch, n))
    first, last = torch.from_numpy(np.maximum(prompt - 1, 0)), torch.full((n,), length)
    return Texts(ids, first, last, kinds)


def save(texts, path):
    np.savez_compressed(
        path,
        ids=texts.ids.numpy().astype(np.uint16 if texts.ids.max() < 65536 else np.int32),
        first=texts.first.numpy(),
        last=texts.last.numpy(),
        kinds=np.array(texts.kinds),
    )


def load(path):
    a = np.load(path)
    ids = torch.from_numpy(a["ids"].astype(np.int64))
    return Texts(
        ids, torch.from_numpy(a["first"]), torch.from_numpy(a["last"]), a["kinds"].tolist()
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=2048)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.time()
    target = checkpoint.load(args.model).to("cuda" if torch.cuda.is_available() else "cpu")
    made = generate(target, args.data, args.count, args.length, args.seed, args.batch)
    save(made, args.out)
    print(f"{len(made)} sequences, {made.tokens} tokens to learn, {time.time() - began:.0f} s")
