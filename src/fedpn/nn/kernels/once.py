"""Gradients that have no gradients themselves."""

from typing import Any

import torch
from torch import Tensor


class Once(torch.autograd.Function):
    """A backward pass as a function that can be mapped, but not differentiated again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("no second derivatives; FEDPN_KERNELS=off has them")
