"""conv_relu_pool on CPU: `conv.c` as a differentiable function of stacked clients."""

from typing import Any

import torch
from torch import Tensor

from fedpn.nn.kernels.native import check, integers, library, native, pointer, shares, threads
from fedpn.nn.kernels.once import Once
from fedpn.nn.kernels.stacking import fold, unfold

CHANNELS = 32  # beyond, matrix products win
KERNELS = (3, 5)
SLACK = 16  # numbers that a vector may read beyond an image, as conv.c says


def suits(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Tells whether the native form takes these; C itself would read beyond what does not fit."""
    if x.dim() != 4 or weight.dim() != 4:
        return False
    filters, channels, *kernel = weight.shape
    return (
        all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (x, weight, bias))
        and x.shape[0] > 0
        and x.shape[1] == channels
        and bias.shape == (filters,)
        and 0 < channels <= CHANNELS
        and 0 < filters <= CHANNELS
        and kernel[0] == kernel[1] in KERNELS
        and min(x.shape[-2:]) > kernel[0]
        and channels * x.shape[-1] * x.shape[-2] < 2**31
        and native() is not None
    )


def conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As the eager form; remembers what a backward pass needs only where one may come."""
    keep = torch.is_grad_enabled()
    stacked = (t.unsqueeze(0) for t in (x, weight, bias))
    y: Tensor = _Forward.apply(*stacked, keep)[0]  # type: ignore[no-untyped-call]
    return y.squeeze(0)


def _shape(x: tuple[int, ...], weight: tuple[int, ...]) -> Any:
    clients, batch, channels, height, width = x
    parts = shares(clients, batch)
    count = min(threads(), clients * parts)
    return integers(clients, batch, channels, height, width, weight[1], weight[-1], parts, count)


class _Forward(torch.autograd.Function):
    """[N, B, C, H, W], [N, O, C, k, k], [N, O] -> y, and for the backward pass x and the corners.

    All three are laid out with channels innermost; y is seen as [N, B, O, H', W'].
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, keep: bool) -> tuple[Tensor, ...]:
        clients, batch, channels, height, width = x.shape
        filters, k = weight.shape[1], weight.shape[-1]
        weight, bias = weight.contiguous(), bias.contiguous()
        y = x.new_empty(clients, batch, (height - k + 1) // 2, (width - k + 1) // 2, filters)
        corners = torch.empty(y.shape if keep else (clients, 0), dtype=torch.uint8)
        inputs = batch * channels * height * width
        kept = x.new_empty(clients, inputs + SLACK if keep else 0)
        check(
            library().fedpn_conv_forward(
                _shape(x.shape, weight.shape),
                pointer(x),
                integers(*x.stride()),
                pointer(weight),
                pointer(bias),
                pointer(y),
                pointer(corners if keep else None),
                pointer(kept if keep else None),
            )
        )
        return y.permute(0, 1, 4, 2, 3), kept, corners

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, kept, corners = output
        ctx.mark_non_differentiable(kept, corners)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(kept, corners, inputs[1])
        ctx.size = inputs[0].shape[-2:]

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gy is None:
            return None, None, None, None
        moves = ctx.needs_input_grad[0]
        dx, *rest = _Backward.apply(gy, *ctx.saved_tensors, *ctx.size, moves)  # type: ignore[no-untyped-call]
        return dx if moves else None, *rest, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        tensors = fold(info.batch_size, in_dims[:3], args[:3])
        return unfold(info.batch_size, _Forward.apply(*tensors, args[3]))  # type: ignore[no-untyped-call]


class _Backward(Once):
    """gy and what was kept -> dx (empty where nobody asks for it), dweight, dbias."""

    @staticmethod
    def forward(
        gy: Tensor,
        kept: Tensor,
        corners: Tensor,
        weight: Tensor,
        height: int,
        width: int,
        moves: bool,
    ) -> tuple[Tensor, ...]:
        clients, batch = gy.shape[:2]
        channels = weight.shape[2]
        weight, kept, corners = weight.contiguous(), kept.contiguous(), corners.contiguous()
        dx = gy.new_empty(clients, batch, height, width, channels if moves else 0)
        dweight, dbias = torch.empty_like(weight), gy.new_empty(clients, weight.shape[1])
        check(
            library().fedpn_conv_backward(
                _shape((clients, batch, channels, height, width), weight.shape),
                pointer(gy),
                integers(*gy.stride()),
                pointer(kept),
                pointer(corners),
                pointer(weight),
                pointer(dweight),
                pointer(dbias),
                pointer(dx if moves else None),
            )
        )
        return dx.permute(0, 1, 4, 2, 3), dweight, dbias

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        tensors = fold(info.batch_size, in_dims[:4], args[:4])
        return unfold(info.batch_size, _Backward.apply(*tensors, *args[4:]))  # type: ignore[no-untyped-call]
