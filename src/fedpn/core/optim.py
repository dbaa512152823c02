"""Local optimisers, as pairs of pure functions.

The state is a `Params` whose names are `kind/parameter`, so that it can be split, averaged and
sent like the parameters that it belongs to.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from fedpn.core.trees import Params, zip_with


class Optimizer(NamedTuple):
    init: Callable[[Params], Params]
    update: Callable[[Params, Params, Params], tuple[Params, Params]]


def owner(name: str) -> str:
    """Tells which parameter an entry of the state belongs to.

    >>> owner("velocity/encoder.conv1.weight")
    'encoder.conv1.weight'
    """
    return name.split("/", 1)[1]


def _pack(**kinds: Params) -> Params:
    return {f"{kind}/{name}": t for kind, params in kinds.items() for name, t in params.items()}


def _unpack(state: Params, kind: str) -> Params:
    mark = f"{kind}/"
    return {name.removeprefix(mark): t for name, t in state.items() if name.startswith(mark)}


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent with heavy-ball momentum, as `torch.optim.SGD`."""

    def init(params: Params) -> Params:
        return _pack(velocity=zip_with(torch.zeros_like, params)) if momentum else {}

    def update(params: Params, grads: Params, state: Params) -> tuple[Params, Params]:
        if weight_decay:
            grads = zip_with(lambda g, p: g + weight_decay * p, grads, params)
        if momentum:
            velocity = _unpack(state, "velocity")
            grads = zip_with(lambda g, v: torch.add(g, v, alpha=momentum), grads, velocity)
            state = _pack(velocity=grads)
        return zip_with(lambda p, g: torch.sub(p, g, alpha=lr), params, grads), state

    return Optimizer(init, update)


def adam(
    lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0
) -> Optimizer:
    """Adam (Kingma & Ba, 2015), as `torch.optim.Adam`; the step count is kept per parameter."""

    def init(params: Params) -> Params:
        m, v = (zip_with(torch.zeros_like, params) for _ in "mv")
        return _pack(m=m, v=v, t=zip_with(lambda p: p.new_zeros(()), params))

    def update(params: Params, grads: Params, state: Params) -> tuple[Params, Params]:
        if weight_decay:
            grads = zip_with(lambda g, p: g + weight_decay * p, grads, params)
        m = zip_with(lambda m, g: b1 * m + (1 - b1) * g, _unpack(state, "m"), grads)
        v = zip_with(lambda v, g: b2 * v + (1 - b2) * g * g, _unpack(state, "v"), grads)
        t = zip_with(lambda t: t + 1, _unpack(state, "t"))

        def move(p, m, v, t):  # type: ignore[no-untyped-def]
            return p - lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps)

        return zip_with(move, params, m, v, t), _pack(m=m, v=v, t=t)

    return Optimizer(init, update)


OPTIMIZERS = {
    "sgd": lambda lr, momentum, weight_decay: sgd(lr, momentum, weight_decay),
    "adam": lambda lr, momentum, weight_decay: adam(lr, b1=momentum, weight_decay=weight_decay),
}
