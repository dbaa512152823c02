"""Our optimisers against torch's own, step by step."""

import pytest
import torch

from fedpn.core.optim import OPTIMIZERS

TORCH = {
    "sgd": lambda p, decay: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=decay),
    "adam": lambda p, decay: torch.optim.Adam(p, lr=0.1, weight_decay=decay),
}


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", TORCH)
def test_agrees_with_torch(name, decay):
    torch.manual_seed(0)
    ours = {"w": torch.randn(3, 2).double(), "b": torch.randn(2).double()}
    theirs = {n: p.clone().requires_grad_() for n, p in ours.items()}
    optimizer, reference = OPTIMIZERS[name](0.1, 0.9, decay), TORCH[name](theirs.values(), decay)
    state = optimizer.init(ours)
    for _ in range(5):
        grads = {n: torch.randn_like(p) for n, p in ours.items()}
        for n, p in theirs.items():
            p.grad = grads[n].clone()
        reference.step()
        ours, state = optimizer.update(ours, grads, state)
    for n in ours:
        torch.testing.assert_close(ours[n], theirs[n].detach(), rtol=1e-12, atol=1e-12)
