"""Training of drafters at a size for one CPU core, from text to checkpoints; interruption too."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import acceptance
import checkpoint
import decode
import dflash2
import draft_run
import evaluate
import features
import test_train
import texts
import train_draft
import train_mtp
from config import Config
from model import Model

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
DRAFT = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "block_size": 4,
    "sliding_window": 24,
    "selector_rank": 8,
    "selector_top_k": 4,
}
RECIPE = {"anchors": 8, "batch": 4, "muon": 0.02}


def target():
    model = Model(Config(vocab_size=600, eos_token_id=594, **test_train.MICRO))
    model.initialize(3)
    return model.eval().requires_grad_(False)


def golden_arrays(folder):
    about, raw = (
        json.loads((folder / "golden.json").read_text()),
        (folder / "golden.bin").read_bytes(),
    )
    types = {"f32": "<f4", "i32": "<i4"}
    return {
        k: np.frombuffer(raw, types[v["dtype"]], int(np.prod(v["shape"])), v["offset"]).reshape(
            v["shape"]
        )
        for k, v in about.items()
    }


@pytest.mark.parametrize("name", ["tiny", "odd"])
def test_the_draft_gives_the_golden_answers(name):
    folder, golden = GOLDEN / name, golden_arrays(GOLDEN / name)
    model = checkpoint.load(folder / "target")
    draft = dflash2.load(folder / "draft", model.embed_tokens.weight, model.lm_head.weight)
    taps = torch.from_numpy(golden["long.hc_mean"].copy())[list(draft.config.target_layer_ids)]
    for n in (1, 10, 60, 97):
        want = {k: golden[f"draft.{n}.{k}"] for k in ("path", "confidence", "candidates", "scores")}
        anchor = torch.tensor([[int(golden[f"draft.{n}.anchor"])]])
        got = draft.walk(
            taps.permute(1, 0, 2).flatten(1)[None],
            torch.tensor([[n]]),
            anchor,
            int(golden[f"draft.{n}.rows"]),
        )
        for key, value in zip(want, got):
            np.testing.assert_allclose(value[0, 0].numpy(), want[key], atol=1e-4)


def test_decoding_gives_what_whole_passes_give():
    model, g = target(), torch.Generator().manual_seed(0)
    ids = torch.randint(0, 590, (2, 60), generator=g)
    ids[1, 9] = model.config.eos_token_id
    decoder = decode.Decoder(model, 2, 60)
    zero, one = torch.zeros(2), torch.ones(2)
    out = decoder.run(ids, torch.tensor([20, 33]), zero, one)
    assert torch.equal(out[0, :20], ids[0, :20]) and torch.equal(out[1, :33], ids[1, :33])
    greedy = model.logits(model.trunk(out)[0]).argmax(-1)
    assert torch.equal(greedy[0, 19:-1], out[0, 20:]) and torch.equal(greedy[1, 32:-1], out[1, 33:])


def test_a_block_sees_its_context_and_itself_alone():
    anchors, window = torch.tensor([[5, 2]]), 4
    mask = dflash2.attention_mask(anchors, 3, 8, window)[0, 0]
    for row, (anchor, i, block) in enumerate([(5, 0, 0), (5, 1, 0), (5, 2, 0), (2, 0, 1)]):
        context = [p for p in range(8) if p < anchor and anchor + i - p < window]
        own = [8 + 3 * block + j for j in range(3)]
        assert mask[row].nonzero().flatten().tolist() == context + own


def test_a_smaller_block_inside_a_large_one_is_that_block():
    model = target()
    data = cycle(model)
    options = train_draft.parse(["--target", "", "--run", "", "--out", ""])
    options.draft = {**DRAFT, "target_layer_ids": (0, 1, 3)}
    draft, taps = train_draft.new_draft(model, 599, options), data.taps((0, 1, 3))
    anchors = torch.tensor([[9, 30]] * 4)
    tokens = data.ids.gather(1, anchors)
    both = draft(taps, anchors, tokens, 4, torch.tensor([[3, 4]] * 4))
    small, large = (draft(taps, anchors, tokens, rows) for rows in (3, 4))
    assert (both[:, 0, :3] - small[:, 0]).abs().max() < 1e-5
    assert (both[:, 1] - large[:, 1]).abs().max() < 1e-5
    assert (small[:, 0] - large[:, 0, :3]).abs().max() > 1e-3


def test_windows_are_walked_as_a_verifier_walks():
    accepted = torch.tensor([[-1, 2, 0, 0, 1, 3, 0, 0, 0, -1]])
    sure = torch.ones(1, 10, 3)
    # From 1: two accepted and one corrected, so on at 4; then 6, 7, 8.
    assert acceptance.windows(accepted, sure, 0.0, 3) == (5, 3 + 2 + 1 + 1 + 1, 15)
    assert acceptance.windows(accepted, sure, 0.0, 1) == (6, 2 + 1 + 2 + 1 + 1 + 1, 6)
    sure[0, 1, 1] = 0.4
    assert acceptance.windows(accepted, sure, 0.5, 3)[:2] == (6, 2 + 1 + 2 + 1 + 1 + 1)


def write_dump(prefix, model, ids, layers):
    """What Strata dumps of the sequences `ids`, made by torch."""
    made = texts.Texts(ids, torch.zeros(len(ids)), torch.full((len(ids),), ids.shape[1]), [])
    features.fill(made, model, layers, residual=True)
    index = np.stack([np.tile(np.arange(ids.shape[1]), len(ids)), ids.flatten().numpy()], 1)
    index.astype("<i4").tofile(f"{prefix}.idx")
    made.features.numpy().tofile(f"{prefix}.f16")
    made.residual.numpy().tofile(f"{prefix}.res")
    about = {"vocabulary": 600, "hidden": 64, "streams": 4, "layers": list(layers)}
    Path(f"{prefix}.json").write_text(json.dumps(about))
    return made


def test_a_dump_is_read_back(tmp_path):
    model, g = target(), torch.Generator().manual_seed(1)
    ids = torch.randint(0, 590, (3, 40), generator=g)
    made = write_dump(tmp_path / "w0", model, ids, (0, 2))
    got = features.read_dump(tmp_path / "w0", 64, residual=True)
    assert got.last.tolist() == [40, 40, 40] and torch.equal(got.ids[:, :40], ids)
    assert torch.equal(got.features[:, :40], made.features)
    assert torch.equal(got.residual[:, :40], made.residual)
    cut = features.read_dump(tmp_path / "w0", 16)
    assert cut.last.tolist() == [16, 16] * 3 and torch.equal(cut.ids[1], ids[0, 16:32])
    notes = [
        {"row": 0, "rows": 40, "prompt": 7, "kind": "a", "held": False},
        {"row": 80, "rows": 40, "prompt": 9, "kind": "b", "held": True},
    ]
    (tmp_path / "w0.jsonl").write_text("".join(json.dumps(n) + "\n" for n in notes))
    train, held = features.read_dumps(tmp_path, 64)
    assert (train.kinds, held.kinds, train.first.tolist()) == (["a"], ["b"], [6])
    assert torch.equal(held.ids[0, :40], ids[2])
    with pytest.raises(ValueError, match=r"layers \[1\] are wanted, the rows hold \[0, 2\]"):
        train.taps((0, 1))


def cycle(model):
    """A text a draft can learn by heart."""
    ids = torch.arange(12).repeat(6)[:60].expand(4, -1).clone() + 50
    made = texts.Texts(ids, torch.zeros(4, dtype=torch.long), torch.full((4,), 60), ["cycle"] * 4)
    return features.fill(made, model, (0, 1, 2, 3), residual=True)


def new_run(folder, model, seed=0):
    options = train_draft.parse(["--target", "", "--run", "", "--out", "", "--seed", str(seed)])
    options.draft = {**DRAFT, "target_layer_ids": (0, 1, 3)}
    draft = train_draft.new_draft(model, 599, options)
    return train_draft.Run(draft, train_draft.Recipe(**RECIPE), folder, "cpu")


def test_a_draft_learns_and_goes_on_exactly_after_an_interruption(tmp_path):
    model = target()
    data = cycle(model)
    whole = new_run(tmp_path / "whole", model)
    before = acceptance.measure(whole.model, data)["all"]["tokens_per_window_0.0"]
    train_draft.train(whole, [data], None, steps=60)
    after = acceptance.measure(whole.model, data)
    assert before < 1.5 and after["all"]["tokens_per_window_0.0"] > 3.5
    assert after["cycle"]["accepted"] == after["all"]["accepted"]

    first = new_run(tmp_path / "parts", model)
    train_draft.train(first, [data], None, until=0.5, steps=60)
    assert first.step == 30
    second = new_run(tmp_path / "parts", model, seed=9)  # its own weights are replaced
    train_draft.train(second, [data], None, steps=60)
    for a, b in zip(whole.model.parameters(), second.model.parameters()):
        assert torch.equal(a, b)

    dflash2.save(whole.model, tmp_path / "draft")
    back = dflash2.load(tmp_path / "draft", model.embed_tokens.weight, model.lm_head.weight)
    assert back.config == whole.model.config
    path = back.walk(data.taps((0, 1, 3)), torch.tensor([[30]] * 4), data.ids[:, 30:31])[0]
    assert torch.equal(path[:, 0], data.ids[:, 31:34])


@pytest.mark.parametrize("recipe", [{"gold": True}, {"detach": True}, {"alpha": 0.1}])
def test_every_recipe_gives_gradients(tmp_path, recipe):
    model = target()
    data, run = cycle(model), new_run(tmp_path, model)
    run.recipe = train_draft.Recipe(**{**RECIPE, **recipe})
    before = copy.deepcopy(run.model.state_dict())
    train_draft.train(run, [data], None, steps=20)
    still = [k for k, v in run.model.state_dict().items() if torch.equal(v, before[k])]
    assert still == []


def test_chained_guesses_in_training_are_those_that_are_served():
    model, g = target(), torch.Generator().manual_seed(2)
    ids = torch.randint(
        0, 590, (2, 15), generator=g
    )  # within the index's budget: no choice to make
    r, _, _ = model.trunk(ids)
    whole = torch.full((2,), 15), torch.zeros(2, dtype=torch.long)
    n, depth = 11, 3
    kept = []
    logits = model.mtp_logits

    model.mtp_logits = lambda r: kept.append(logits(r)) or kept[-1]
    train_mtp.guess_losses(model, r, ids, *whole, depth)
    del model.mtp_logits
    cells, following = r[:, :n], ids[:, 1 : n + 1]
    for k in range(depth):
        out, _, _ = model.mtp_step(cells, following)
        want = model.mtp_logits(out[:, -1])
        assert (kept[k][:, n - 1] - want).abs().max() < 1e-4 * want.std()
        cells = torch.cat([cells, out[:, -1:]], 1)
        following = torch.cat([following, ids[:, n + 1 + k : n + 2 + k]], 1)


def test_an_mtp_layer_learns_and_goes_back_into_its_checkpoint(tmp_path):
    model = target()
    checkpoint.save(model, tmp_path / "target")
    data = cycle(model)
    run = train_mtp.Run(model, tmp_path / "run", 1.0, "cpu")
    before = train_mtp.measure(model, data)["accepted"]
    train_mtp.train(run, data, None, seconds=0, steps=40, batch=4)
    after = train_mtp.measure(model, data)["accepted"]
    assert before[2] < 0.5 and after[2] == 1.0
    train_mtp.save_mtp(model, tmp_path / "mtp.safetensors")
    train_mtp.merge(tmp_path / "target", tmp_path / "mtp.safetensors", tmp_path / "merged")
    merged, stock = checkpoint.load(tmp_path / "merged"), checkpoint.load(tmp_path / "target")
    same = [
        n for (n, a), b in zip(merged.named_parameters(), stock.parameters()) if torch.equal(a, b)
    ]
    assert same == [n for n, _ in stock.named_parameters() if not n.startswith("mtp.")]


def test_the_whole_run_goes_through_in_stages(tmp_path):
    test_train.make_data(tmp_path)
    vocab = json.loads((tmp_path / "data" / "pack.json").read_text())["vocab"]
    model = Model(Config(**vocab, **test_train.MICRO))
    model.initialize(3)
    checkpoint.save(model, tmp_path / "target")
    (tmp_path / "tokenizer" / "tokenizer.json").rename(tmp_path / "data" / "tokenizer.json")
    (tmp_path / "files").mkdir()
    for name in ("a.c", "b.c", "c.c", "d.c", "e.c", "f.c"):
        (tmp_path / "files" / name).write_text("int main(void) { return 0; }\n" * 20)
    common = ["--model", tmp_path / "target", "--data", tmp_path / "data", "--work", tmp_path / "w"]
    common += ["--out", tmp_path / "out", "--length", "48", "--count", "8", "--held", "2"]
    common += ["--decode", "8", "--batch", "4", "--steps", "3", "--choose-count", "4", "--rounded"]
    common += [
        "--choose-steps",
        "1",
        "--variants",
        "gamma,taps,rank",
        "--mtp-count",
        "4",
        "--compare-count",
        "4",
        "--files",
    ]
    common += [
        tmp_path / "files",
        "--draft",
        json.dumps(DRAFT),
        "--recipe",
        json.dumps({"anchors": 4}),
    ]
    common = [str(x) for x in common]
    draft_run.main([*common, "--stages", "text,choose"])
    draft_run.main([*common, "--stages", "train", "--until", "0.5"])
    draft_run.main([*common, "--stages", "train,mtp,compare"])
    out = sorted(p.name for p in (tmp_path / "out").iterdir())
    wanted = ["choices.json", "compare.json", "draft.json", "draft.jsonl", "draft.safetensors"]
    assert out == [*wanted, "mtp.jsonl", "mtp.safetensors"]
    steps = [json.loads(x)["step"] for x in (tmp_path / "out/draft.jsonl").read_text().splitlines()]
    assert max(steps) == 3
    result = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert set(result["stock"]) == {"files", "others"} == set(result["tuned"])


def test_the_bundled_file_is_read_as_it_runs():
    model = checkpoint.load(GOLDEN.parents[1] / "models" / "strata-mini.gguf")
    # A turn of the user, "what does grep do?", and the head of the answer; models/README.md has it.
    prompt = [6651, 1875, 198, 1938, 270, 1063, 3411, 79, 568, 30, 6652, 198]
    prompt += [6651, 435, 457, 712, 198, 6653, 273, 6654, 273]
    answer = [70, 4297, 1227, 82, 1655, 445, 1299, 5278, 13]
    assert evaluate.generate(model, prompt, len(answer))[len(prompt) :] == answer
