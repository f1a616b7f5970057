"""A whole run at a size for one CPU core: text, tokenizer, packing, 20 steps, export, and the file
read back.
"""

import json
import random
from pathlib import Path

import torch

import checkpoint
import export
import pack
import ship
import tokenizer
import train
from gdn import gated_delta

HERE = Path(__file__).parent
MICRO = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "ple_embed_dim": 64,
    "heads_per_ngram": 1,
    "indexer_budget": 16,
    "ngram_vocab_size_base": 300,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "head_dim": 32,
    "mrope_section": (2, 1, 1),
    "indexer_head_dim": 16,
    "hc_lowrank": 16,
}


def make_data(folder):
    documents = [
        {
            "kind": "python",
            "package": "libpython",
            "path": f"usr/lib/python3/{p.name}",
            "text": p.read_text(),
        }
        for p in sorted(HERE.glob("*.py"))
    ] * 30
    for i, document in enumerate(documents):
        document = {**document, "path": document["path"].replace(".py", f"_{i}.py")}
        documents[i] = document
    (folder / "documents.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    tokenizer.save(tokenizer.build((d["text"] for d in documents), 600), folder / "tokenizer")
    pack.pack(
        folder / "documents.jsonl",
        tokenizer.Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json")),
        folder / "data",
    )


def test_train_and_export(tmp_path):
    make_data(tmp_path)
    run = train.main(
        [
            "--data",
            str(tmp_path / "data"),
            "--run",
            str(tmp_path / "run"),
            "--out",
            str(tmp_path / "out"),
            "--seconds",
            "600",
            "--steps",
            "20",
            "--batch",
            "4",
            "--length",
            "64",
            "--log-every",
            "4",
            "--eval-windows",
            "8",
            "--config",
            json.dumps(MICRO),
        ]
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]

    ship.write_parts(run.model, tmp_path / "parts", exact=True)
    ship.read_parts(run.model, tmp_path / "parts")
    checkpoint.save(run.model, tmp_path / "model")
    assert export.requantizes_exactly(tmp_path / "model", tmp_path / "parts")
    ids = torch.randint(0, 590, (1, 70))
    loaded = checkpoint.load(tmp_path / "model")
    with torch.no_grad():
        want = run.model.eval().logits(run.model.trunk(ids)[0])
        got = loaded.logits(loaded.trunk(ids)[0])
    assert (want - got).abs().max() < 0.1 * want.std()  # BF16 rounding of the exported weights


def test_resumes_exactly(tmp_path):
    make_data(tmp_path)
    common = [
        "--data",
        str(tmp_path / "data"),
        "--seconds",
        "600",
        "--batch",
        "2",
        "--length",
        "32",
        "--eval-windows",
        "4",
        "--until",
        "0",
        "--config",
        json.dumps(MICRO),
    ]
    windows, _ = train.load_data(train.parse([*common, "--run", str(tmp_path / "a")]), "cpu")
    first, again = windows(5), windows(5)
    assert torch.equal(first, again) and not torch.equal(first, windows(6))
    run = train.main([*common, "--run", str(tmp_path / "a")])
    back = train.Run(train.parse([*common, "--run", str(tmp_path / "a")]), run.model.config)
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), back.model.parameters()))


def test_chunks_equal_recurrence():
    g = torch.Generator().manual_seed(random.Random(0).randrange(100))
    q, k = (
        torch.nn.functional.normalize(torch.randn(1, 40, 2, 8, generator=g), dim=-1)
        for _ in range(2)
    )
    v, decay = torch.randn(1, 40, 6, 8, generator=g), -torch.rand(1, 40, 6, generator=g)
    beta = torch.rand(1, 40, 6, generator=g)
    got = gated_delta(q, k, v, decay, beta, chunk=16)
    state = torch.zeros(6, 8, 8)
    for t in range(40):
        qh, kh = (x[0, t].repeat_interleave(3, 0) for x in (q, k))
        state = state * decay[0, t].exp()[:, None, None]
        delta = beta[0, t][:, None] * (v[0, t] - torch.einsum("hkv,hk->hv", state, kh))
        state = state + kh[:, :, None] * delta[:, None, :]
        assert torch.allclose(got[0, t], torch.einsum("hkv,hk->hv", state, qh), atol=1e-5)
