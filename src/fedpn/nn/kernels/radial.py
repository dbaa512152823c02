"""radial_log_prob on CPU: `radial.c` as a differentiable function of stacked clients."""

from typing import Any

import torch
from torch import Tensor

from fedpn.nn.kernels.eager import Radial
from fedpn.nn.kernels.native import check, integers, library, native, pointer, shares, threads
from fedpn.nn.kernels.once import Once
from fedpn.nn.kernels.stacking import fold, unfold


def suits(z: Tensor, flows: Radial) -> bool:
    """Tells whether the native form takes these: rows z [B, D] and one stack for each class.

    C itself would read beyond what does not fit.
    """
    return (
        all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (z, *flows))
        and z.dim() == 2
        and flows.x0.dim() == 3
        and min(*z.shape, *flows.x0.shape) > 0
        and flows.x0.shape[2] == z.shape[1]
        and flows.a.shape == flows.s.shape == flows.x0.shape[:2]
        and native() is not None
    )


def radial_log_prob(z: Tensor, flows: Radial, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Under each row's own flow, [B], or without labels under every flow, [B, K]."""
    stacked = [None if t is None else t.unsqueeze(0) for t in (z, *flows, labels)]
    seen, blind = _Forward.apply(*stacked)  # type: ignore[no-untyped-call]
    return seen.squeeze(0), blind.squeeze(0)


def _call(z: Tensor, flows: Radial, labels: Tensor | None, **others: Tensor) -> None:
    """Calls C; what `others` does not name is NULL."""
    clients, batch, dim = z.shape
    classes, layers = flows.a.shape[1:]
    parts = shares(clients, batch)
    count = min(threads(), clients * parts)
    shape = integers(clients, batch, classes, layers, dim, parts, count)
    names = ("out", "seen", "blind", "dz", "dx0", "da", "ds")
    tensors = (z, *flows, labels, *(others.get(name) for name in names))
    check(library().fedpn_radial(shape, *map(pointer, tensors)))


class _Forward(torch.autograd.Function):
    """[N, B, D], N × K flows, labels [N, B] or none -> log p, twice: [N, B] or [N, B, K]."""

    @staticmethod
    def forward(
        z: Tensor, x0: Tensor, a: Tensor, s: Tensor, labels: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        clients, batch, _ = z.shape
        z, x0, a, s = (t.contiguous() for t in (z, x0, a, s))
        if labels is not None:
            labels = labels.contiguous()
        out = z.new_empty((clients, batch) if labels is not None else (clients, batch, x0.shape[1]))
        _call(z, Radial(x0, a, s), labels, out=out)
        return out, out.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, seen: Tensor, blind: Tensor) -> tuple[Tensor | None, ...]:
        grads = _Backward.apply(seen, blind, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return *grads, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return unfold(info.batch_size, _Forward.apply(*_fold(info, in_dims, args)))  # type: ignore[no-untyped-call]


class _Backward(Once):
    """The gradients of both outputs -> those of z, x0, a and s."""

    @staticmethod
    def forward(seen: Tensor, blind: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        seen, blind = seen.contiguous(), blind.contiguous()
        *tensors, labels = (t if t is None else t.contiguous() for t in inputs)
        z, flows = tensors[0], Radial(*tensors[1:])
        dz, dx0, da, ds = (torch.zeros_like(t) for t in tensors)
        _call(z, flows, labels, seen=seen, blind=blind, dz=dz, dx0=dx0, da=da, ds=ds)
        return dz, dx0, da, ds

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return unfold(info.batch_size, _Backward.apply(*_fold(info, in_dims, args)))  # type: ignore[no-untyped-call]


def _fold(info: Any, in_dims: Any, args: Any) -> list[Tensor | None]:
    """Folds all but the labels where there are none."""
    tensors, labels = (args, []) if args[-1] is not None else (args[:-1], [None])
    return [*fold(info.batch_size, in_dims[: len(tensors)], tensors), *labels]
