"""The two hot operations, behind one function each: native where it can be, eager elsewhere.

The native forms are C, compiled when the package is built (`native.py`); `FEDPN_KERNELS=off` turns
them off, `FEDPN_KERNELS=build` compiles them on first use, and `status()` says what is in use.
A GPU, float64, an unusual shape or a machine without a library takes the eager forms.

C rather than numba, by measurement (`benchmarks/README.md`).
"""

import torch
from torch import Tensor

from fedpn.core.tracing import is_traced
from fedpn.nn.kernels import conv, eager, radial
from fedpn.nn.kernels.eager import Radial
from fedpn.nn.kernels.native import status

__all__ = ["Radial", "conv_relu_pool", "label_log_prob", "radial_log_prob", "status"]


def conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolves without padding, rectifies, keeps the largest of each 2×2.

    [B, C, H, W], [O, C, k, k], [O] -> [B, O, (H−k+1)/2, (W−k+1)/2]
    """
    if not is_traced() and conv.suits(x, weight, bias):
        return conv.conv_relu_pool(x, weight, bias)
    return eager.conv_relu_pool(x, weight, bias)


def radial_log_prob(z: Tensor, flow: Radial) -> tuple[Tensor, Tensor]:
    """Returns log p(z) under the flow, twice: the second is blind to the flow's parameters.

    Both are equal; the first sends gradients to z and to the flow, the second to z alone (the
    stop-gradient of eq. 8, for the price of one pass). [..., D] -> [...], [...]
    """
    if z.dim() == 3 and z.shape[1] == 1 and not is_traced() and radial.suits(z[:, 0], flow):
        return radial.radial_log_prob(z[:, 0], flow, None)
    return eager.radial_log_prob(z, flow)


def label_log_prob(z: Tensor, flows: Radial, labels: Tensor) -> tuple[Tensor, Tensor]:
    """As `radial_log_prob`, each row under its own label's flow.

    z [B, D], x0 [K, L, D], a and s [K, L], labels [B] -> [B], [B]
    """
    if labels.dtype == torch.int64 and not is_traced() and radial.suits(z, flows):
        return radial.radial_log_prob(z, flows, labels)
    return eager.radial_log_prob(z, Radial(*(p[labels] for p in flows)))
