"""Operations in two forms: the fast one, and one that exporters can see through."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def is_traced() -> bool:
    """Compilers and exporters see through PyTorch's own operations only."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def chunks(x: Tensor, size: int) -> list[Tensor]:
    """Parts of at most so many rows; one, while a graph is drawn for any number of them."""
    return [x] if is_traced() else list(torch.split(x, size))


def pool_to(x: Tensor, size: tuple[int, int]) -> Tensor:  # [..., H, W] -> [..., h, w]
    """Adaptive average pooling.

    >>> x = torch.arange(35.0).reshape(1, 1, 5, 7)
    >>> torch.allclose(_pool(x, (3, 4)), F.adaptive_avg_pool2d(x, (3, 4)))
    True
    """
    return _pool(x, size) if is_traced() else F.adaptive_avg_pool2d(x, size)


def _pool(x: Tensor, size: tuple[int, int]) -> Tensor:
    rows, columns = (_shares(int(n), int(m)).to(x) for n, m in zip(x.shape[-2:], size, strict=True))
    return rows @ x @ columns.T


def _shares(length: int, parts: int) -> Tensor:  # [parts, length]
    """What share each place has in each part."""
    table = torch.zeros(parts, length)
    for i in range(parts):
        first, last = i * length // parts, -(-(i + 1) * length // parts)
        table[i, first:last] = 1 / (last - first)
    return table


def count_each(place: Tensor, bins: int) -> Tensor:  # [B, n] -> [B, bins]
    """How often each row has each number below `bins`.

    >>> count_each(torch.tensor([[0, 2, 2], [1, 1, 1]]), 3)
    tensor([[1, 0, 2],
            [0, 3, 0]])
    """
    if is_traced():
        return torch.stack([(place == i).sum(1) for i in range(bins)], 1)
    rows = torch.arange(len(place), device=place.device)[:, None]
    count = torch.bincount((place + bins * rows).flatten(), minlength=bins * len(place))
    return count.reshape(len(place), bins)


def asinh(x: Tensor) -> Tensor:
    """
    >>> x = torch.tensor([-3e38, -0.5, 0.0, 2.0]).double()
    >>> torch.allclose(_asinh(x), x.asinh())
    True
    """
    return _asinh(x) if is_traced() else x.asinh()


def _asinh(x: Tensor) -> Tensor:
    size = x.abs()
    return x.sign() * (size + (size.square() + 1).sqrt()).log()
