"""What every training run keeps in its folder: the state that it goes on from, and a log."""

import json
from pathlib import Path

import torch


class SavedRun:
    """Step and progress of a run. `trained` is the module whose weights are kept, under the name
    `key`; the first of `folders` holds the state, and each of them a log.
    """

    key = "model"

    def __init__(self, trained, optimizers, device, folders):
        self.trained, self.optimizers, self.device = trained, optimizers, device
        self.folders = [Path(folder) for folder in folders]
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)
        self.step, self.progress = 0, 0.0

    def save(self):
        folder = self.folders[0]
        state = {
            self.key: self.trained.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "progress": self.progress,
        }
        torch.save(state, folder / "state.tmp")
        (folder / "state.tmp").rename(folder / "state.pt")

    def restore(self):
        """Goes on where the run was saved; nothing where it was not."""
        path = self.folders[0] / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device)
        self.trained.load_state_dict(state[self.key])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.step, self.progress = state["step"], state["progress"]

    def log(self, **values):
        line = json.dumps({"step": self.step, "progress": round(self.progress, 4), **values})
        print(line, flush=True)
        for folder in self.folders:
            with open(folder / "log.jsonl", "a") as f:
                f.write(line + "\n")
