"""The gradient of one client's objective, alone or under a map over stacked clients.

Clients are independent, so the gradient of the *sum* of mapped values with respect to stacked
parameters is each client's gradient. Plain autograd takes it below the map, which spares every
operation a second layer of `torch.func`; where another transform is about, `torch.func` does it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # the map's own door to what it wraps; there is no public one
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.func import grad_and_value

from fedpn.core.trees import Params

Objective = Callable[[Params], tuple[Tensor, Params]]


def gradient(objective: Objective, params: Params) -> tuple[Params, Tensor, Params]:
    """Returns the gradient, the value and the new buffers."""
    around = _functorch.peek_interpreter_stack()
    if around is None:
        return _plain(objective, params)
    if around.key() == _functorch.TransformType.Vmap and around.level() == 1:
        return _mapped(objective, params, around)
    grads, (value, buffers) = grad_and_value(objective, has_aux=True)(params)
    return grads, value, buffers


def _plain(objective: Objective, params: Params) -> tuple[Params, Tensor, Params]:
    leaves = {name: t.detach().requires_grad_() for name, t in params.items()}
    with torch.enable_grad():
        value, buffers = objective(leaves)
    grads = _grads(value, leaves)
    return grads, value.detach(), {name: t.detach() for name, t in buffers.items()}


def _mapped(objective: Objective, params: Params, around: Any) -> tuple[Params, Tensor, Params]:
    size, level = _functorch.CVmapInterpreterPtr(around).batchSize(), around.level()

    def bare(tensor: Tensor) -> Tensor:
        """What the map wraps, stacked; what all clients share is expanded."""
        inner, dim = _functorch._unwrap_batched(tensor, level)
        return inner.expand(size, *inner.shape) if dim is None else inner.movedim(dim, 0)

    def wrapped(tensors: Params) -> Params:
        return {name: _functorch._add_batch_dim(t, 0, level) for name, t in tensors.items()}

    with temporarily_pop_interpreter_stack():
        leaves = {name: bare(t).detach().requires_grad_() for name, t in params.items()}
    with torch.enable_grad():
        value, buffers = objective(wrapped(leaves))
    with temporarily_pop_interpreter_stack():
        values = bare(value)
        grads = _grads(values.sum(), leaves)
        told = {name: bare(t).detach() for name, t in buffers.items()} | {"": values.detach()}
    told = wrapped(told)
    return wrapped(grads), told.pop(""), told


def _grads(value: Tensor, leaves: Params) -> Params:
    if not leaves:
        return {}
    found = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))
