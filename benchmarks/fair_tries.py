"""What is tried of each method: four settings each, like beside like.

A family is one way of taking steps. Its methods share four rates; a method with a setting of its
own has the two in the middle, with two values of that setting each. Methods that have no such
rates, or whose settings hang together, name their four tries.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]
TRIES = 4


def each(key: str, *values: Any) -> tuple[Tree, ...]:
    return tuple({key: value} for value in values)


@dataclass(frozen=True)
class Family:
    """Methods that take their steps in one way, and so may be compared."""

    title: str
    settings: Tree
    rates: tuple[float, ...] = ()
    methods: dict[str, tuple[Tree, ...]] = field(default_factory=dict)

    def tries(self, method: str) -> Iterator[Tree]:
        """The settings to try, as flat keys."""
        own = self.methods[method]
        if len(own) == TRIES:
            yield from (self.settings | settings for settings in own)
            return
        for rate in self.rates[1:-1] if own else self.rates:
            for settings in own or ({},):
                yield self.settings | {"method.lr": rate} | settings


# Per-FedAvg in first order, with more and longer steps before it predicts than in training.
SHORT_INNER = {"method.mode": "first-order", "method.adapt_steps": 10, "method.adapt_lr": 0.01}
# pFedMe's five gradients a step would be five times the work of the others.
THREE_INNER = {"method.inner_steps": 3}

FAMILIES = {
    "momentum": Family(
        "SGD with momentum 0.9, averaged with the weights",
        {"method.momentum": 0.9},
        (0.01, 0.02, 0.05, 0.1),
        {
            "fedavg": (),
            "fedprox": each("method.mu", 0.01, 0.1),
            "local": (),
            "fedper": (),
            "fedrep": each("method.head_share", 0.2, 0.5),
            "fedbabu": each("method.adapt_lr", 1e-3, 1e-2),
            "apfl": each("method.alpha", 0.5, 0.75),
            "ditto": each("method.tether", 0.1, 1.0),
            "fedrod": (),
            "perfedavg": (
                SHORT_INNER | {"method.inner_lr": 0.002},
                SHORT_INNER | {"method.inner_lr": 0.01},
            ),
            "fedpn": tuple({"method.cap": cap, "method.adapt_steps": 150} for cap in (0.0, 1.0)),
        },
    ),
    "plain": Family(
        "plain SGD",
        {"method.momentum": 0.0},
        (0.01, 0.03, 0.1, 0.2),
        {
            "fedavg": (),
            "scaffold": (),
            "fedavgm": each("method.server_momentum", 0.5, 0.9),
            "perfedavg": each("method.inner_lr", 0.002, 0.01),
            "pfedme": tuple(
                {"method.lr": rate, "method.inner_lr": rate, "method.tether": tether} | THREE_INNER
                for rate, tether in ((0.05, 5.0), (0.05, 15.0), (0.1, 5.0), (0.1, 10.0))
            ),
        },
    ),
    "closed form": Family(
        "no steps at all", {}, (), {"analytic": each("head.filters", 20, 40, 60, 80)}
    ),
    "batchnorm": Family(
        "BatchNorm, SGD with momentum 0.9, averaged with the weights",
        {"method.momentum": 0.9, "model.norm": "batch"},
        (0.01, 0.02, 0.05, 0.1),
        {"fedavg": (), "fedbn": ()},
    ),
}
