"""Whether a matrix can be a sum of products vvᵀ: it has no negative direction."""

import torch
from torch import Tensor

SLACK = 1e-6  # that rounding may take, where squares are 1


def is_product(gram: Tensor) -> bool:  # [..., F, F]
    """Whether sums of products could be these, whatever the scales of what was multiplied.

    >>> is_product(torch.tensor([[4.0, 1.0], [1.0, 1.0]]))
    True
    >>> is_product(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    False
    """
    squares = gram.diagonal(dim1=-2, dim2=-1)
    if not gram.isfinite().all() or (squares < 0).any():
        return False
    scale = squares.clamp(min=1e-300).rsqrt()
    even = gram * scale[..., :, None] * scale[..., None, :]
    even = even + SLACK * torch.eye(gram.shape[-1], dtype=gram.dtype)
    return not bool(torch.linalg.cholesky_ex(even).info.any())
