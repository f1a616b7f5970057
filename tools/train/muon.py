"""Muon for matrices (orthogonalized momentum), AdamW for everything else."""

import torch

ADAM_RATES = {
    "embed_tokens": 6e-3,
    "lm_head": 4e-3,
    "ngram_embedding": 1e-2,
    "mlp.gate.": 3e-3,
    "inject": 3e-3,
}
ADAM_DEFAULT = 4e-3  # norms, convolutions, decays, small projections


def is_muon(name, p):
    """Matrices whose smaller side is large enough for an orthogonal update to mean something."""
    return (
        p.dim() in (2, 3)
        and "conv1d" not in name
        and not any(k in name for k in ADAM_RATES)
        and min(p.shape[-2:]) >= 16
    )


def orthogonalize(g):
    """Newton-Schulz towards U V^T, for a batch of matrices, in bfloat16."""
    x = g.bfloat16() if g.is_cuda else g.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Parameters of one shape are stacked: a few batched products instead of hundreds of small
    ones.
    """

    def __init__(self, named, lr=0.02, momentum=0.95, decay=0.05):
        shapes = {}
        for name, p in named:
            # gate and up are two matrices that share storage
            key = (p.shape[-2] // 2 if "gate_up" in name else p.shape[-2], p.shape[-1])
            shapes.setdefault(key, []).append(p)
        groups = [{"params": ps, "shape": key} for key, ps in shapes.items()]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            rows, columns = group["shape"]
            params = group["params"]
            grads = torch.cat([p.grad.reshape(-1, rows, columns) for p in params])
            state = self.state[params[0]]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(grads)
            buffer = state["momentum"]
            buffer.lerp_(grads, 1 - group["momentum"])
            update = orthogonalize(grads.lerp(buffer, group["momentum"])).to(grads.dtype)
            update *= -group["lr"] * max(1, rows / columns) ** 0.5
            parts = update.split([p.numel() // (rows * columns) for p in params])
            torch._foreach_mul_(params, 1 - group["lr"] * group["decay"])
            torch._foreach_add_(params, [u.reshape(p.shape) for u, p in zip(parts, params)])


def optimizers(model, muon_lr=0.02, adam_scale=1.0):
    named = list(model.named_parameters())
    matrices = [(n, p) for n, p in named if is_muon(n, p)]
    rates = {}
    for n, p in named:
        if not is_muon(n, p):
            rate = next((r for k, r in ADAM_RATES.items() if k in n), ADAM_DEFAULT)
            rates.setdefault(rate, []).append(p)
    groups = [{"params": ps, "lr": rate * adam_scale} for rate, ps in rates.items()]
    adam = torch.optim.AdamW(
        groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=named[0][1].is_cuda
    )
    both = [Muon(matrices, muon_lr), adam]
    for optimizer in both:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return both
