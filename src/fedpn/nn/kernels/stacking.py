"""Mapping over clients: every kernel takes stacked clients, [N, ...], so a map only stacks more."""

from collections.abc import Sequence

from torch import Tensor


def fold(size: int, in_dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Joins the mapped axis with the clients' axis: [M, N, ...] -> [M·N, ...].

    What is not mapped is the same for all and is expanded, not copied.
    """
    folded = []
    for tensor, dim in zip(tensors, in_dims, strict=True):
        stacked = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        folded.append(stacked.flatten(0, 1))
    return folded


def unfold(size: int, tensors: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Parts them again, and says that the mapped axis is the first of each."""
    parted = tuple(t.view(size, t.shape[0] // size, *t.shape[1:]) for t in tensors)
    return parted, (0,) * len(tensors)
