"""Arithmetic on named tensors.

`Params` maps a parameter's name to its tensor; `Slots` maps a role ("model", "optimizer") to
`Params`. Every state that a server keeps, a client keeps or a wire carries is a `Slots`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Params = dict[str, Tensor]
Slots = dict[str, Params]


def zip_with(f: Callable[..., Tensor], *trees: Params) -> Params:
    """Applies `f` name by name.

    >>> zip_with(torch.add, {"w": torch.tensor(1)}, {"w": torch.tensor(2)})
    {'w': tensor(3)}
    """
    return {name: f(*(tree[name] for tree in trees)) for name in trees[0]}


def map_slots(f: Callable[..., Tensor], *slots: Slots) -> Slots:
    """Applies `f` role by role, name by name."""
    return {role: zip_with(f, *(s[role] for s in slots)) for role in slots[0]}


def split(params: Params, inside: Callable[[str], bool]) -> tuple[Params, Params]:
    """Returns the entries inside the selection, and those outside of it."""
    chosen = {name: p for name, p in params.items() if inside(name)}
    return chosen, {name: p for name, p in params.items() if name not in chosen}


def stack(slots: Sequence[Slots]) -> Slots:
    """Puts clients side by side on a new leading axis."""
    return map_slots(lambda *ts: torch.stack(ts), *slots)


def unstack(slots: Slots, count: int) -> list[Slots]:
    """Undoes `stack`; `count` is needed where a client has no tensors at all."""
    return [map_slots(lambda t, i=i: t[i], slots) for i in range(count)]


def public(slots: Slots) -> Slots:
    """Drops the roles `_like_this`, which a server keeps to itself."""
    return {role: params for role, params in slots.items() if not role.startswith("_")}


def not_finite(slots: Slots) -> str:
    """The first tensor with a number that is not finite, as `role/name`; "" where all are.

    >>> not_finite({"model": {"w": torch.ones(2), "b": torch.tensor([1.0, torch.inf])}})
    'model/b'
    """
    bad = (name for name, t in flatten(slots).items() if not t.isfinite().all())
    return next(bad, "")


def is_wide(t: Tensor) -> bool:
    """Whether means can be taken in a tensor's own type: not of integers, booleans and halves."""
    return t.dtype in (torch.float32, torch.float64)


def move(t: Tensor, before: Tensor) -> Tensor:
    """How far a tensor is from what it was; float64 where its own type cannot hold a mean.

    >>> move(torch.tensor([True, False]), torch.tensor(True))
    tensor([ 0., -1.], dtype=torch.float64)
    """
    if is_wide(t):
        return t - before
    if t.is_floating_point():
        return t.double() - before.double()
    return (t.long() - before.long()).double()  # exact beyond 2⁵³, where constants may lie


def moved_by(before: Tensor, step: Tensor) -> Tensor:
    """Undoes `move`, in the type that the tensor had: rounded, or by majority.

    >>> moved_by(torch.tensor(3), torch.tensor(1.7))
    tensor(5)
    >>> moved_by(torch.tensor(True), torch.tensor(-0.6))
    tensor(False)
    """
    if before.dtype == torch.bool:
        return before.double() + step >= 0.5
    if before.is_floating_point():
        return (before.double() + step).to(before.dtype)
    return (before.long() + step.round().long()).to(before.dtype)


def in_types_of(slots: Slots, before: Slots) -> Slots:
    """The same entries, each in the type that it had before, where it was there."""

    def cast(t: Tensor, old: Tensor) -> Tensor:
        if t.dtype == old.dtype:
            return t
        return moved_by(torch.zeros_like(old), t.detach().double())

    return {
        role: {n: cast(t, before.get(role, {}).get(n, t)) for n, t in params.items()}
        for role, params in slots.items()
    }


def weigh(slots: Slots) -> int:
    """How many bytes the numbers take.

    >>> weigh({"model": {"w": torch.ones(2)}})
    8
    """
    return sum(t.nbytes for params in slots.values() for t in params.values())


def flatten(slots: Slots) -> Params:
    """Names each tensor `role/name`, for files and wires.

    >>> flatten({"model": {"w": torch.tensor(1)}})
    {'model/w': tensor(1)}
    """
    return {f"{role}/{name}": t for role, params in slots.items() for name, t in params.items()}


def unflatten(params: Params, roles: Sequence[str] = ()) -> Slots:
    """Undoes `flatten`; `roles` names those that must exist though they may be empty."""
    slots: Slots = {role: {} for role in roles}
    for key, tensor in params.items():
        role, name = key.split("/", 1)
        slots.setdefault(role, {})[name] = tensor
    return slots
