"""Compares a checkpoint folder with the public reference (transformers' qwen4_exp), float32, one
prompt.
"""

import argparse

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

import checkpoint

TEXT = (
    "def main():\n    import os\n    for name in os.listdir('.'):\n"
    "        print(os.path.join('.', name))\n\n" * 16
)


@torch.no_grad()
def compare(folder):
    ids = torch.tensor([Tokenizer.from_file(f"{folder}/tokenizer.json").encode(TEXT).ids])
    config = AutoConfig.from_pretrained(folder)
    reference = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32
    ).eval()
    want = reference(input_ids=ids).logits
    model = checkpoint.load(folder)
    got = model.logits(model.trunk(ids)[0])
    same = (got.argmax(-1) == want.argmax(-1)).float().mean().item()
    return ids.shape[1], (got - want).abs().max().item(), want.std().item(), same


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    length, error, spread, same = compare(parser.parse_args().folder)
    print(
        f"{length} tokens: largest difference {error:.2e}, "
        f"spread of the logits {spread:.2f}, same argmax {same:.4f}"
    )
