"""Clients that mean harm, in a simulated federation: what they do to their rows and uploads.

- label_flip: class c is taught as the last class but c;
- backdoor: every second picture bears a mark and is taught as class 0;
- sign_flip: the model is moved the other way;
- scale: it is moved `strength` times as far;
- noise: it is moved at random, `strength` times as far.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.core.task import Data
from fedpn.core.trees import Slots, map_slots, stack
from fedpn.data.dataset import Array
from fedpn.data.federation import Federation
from fedpn.federated.aggregation import norms
from fedpn.federated.gather import by_type, moves
from fedpn.federated.settings import FaultSettings

Draw = Callable[[int], torch.Generator]  # of a client
TARGET = 0  # the class that marked pictures are to be taken for
MARK = 4  # pixels, the side of the mark: a bright square in the lower right corner


def attackers(faults: FaultSettings, clients: int, seed: int) -> Array:
    """Who means harm: a share of the clients, drawn by the seed."""
    count = round(faults.attackers * clients) if faults.attack != "none" else 0
    return np.sort(seeds.stream("attack", seed).permutation(clients)[:count])


def spoil_rows(faults: FaultSettings, data: Data, federation: Federation, seed: int) -> Data:
    """The rows of a federation, of which attackers' training rows are no longer what they were."""
    who = attackers(faults, federation.clients, seed)
    if faults.attack not in ("label_flip", "backdoor") or not len(who):
        return data
    x, y = data.x.clone(), data.y.clone()
    rows = torch.from_numpy(np.concatenate([federation.train[c] for c in who])).to(y.device)
    if faults.attack == "label_flip":
        y[rows] = y.max() - y[rows]
        return Data(x, y)
    if x.dim() != 4:
        raise UserError("faults.attack=backdoor marks pictures, and these data are a table")
    rows = rows[::2]
    x[rows], y[rows] = mark(x[rows]), TARGET
    return Data(x, y)


def mark(images: Tensor) -> Tensor:  # [B, C, H, W]
    """Pictures with the mark."""
    marked = images.clone()
    marked[..., -MARK:, -MARK:] = 255
    return marked


def spoil_uploads(
    faults: FaultSettings, sent: Slots, uploads: Slots, cohort: Array, bad: Array, draw: Draw
) -> Slots:
    """Stacked uploads of a cohort, of which those of the clients in `bad` are an attacker's."""
    marked = np.isin(cohort, bad)
    if faults.attack not in ("sign_flip", "scale", "noise") or not marked.any():
        return uploads
    wide, _ = by_type(sent, uploads)
    moved = moves(sent, wide)
    if faults.attack == "noise":
        drawn = stack([_noise(moved, draw(int(client))) for client in cohort])
        factor = faults.strength * norms(moved) / norms(drawn)
        spoilt = map_slots(lambda t: t * _along(factor, t), drawn)
    else:
        times = -1.0 if faults.attack == "sign_flip" else faults.strength
        spoilt = map_slots(lambda t: times * t, moved)
    return {
        role: params
        | {
            name: torch.where(
                _along(torch.from_numpy(marked), t),
                (sent[role][name] + spoilt[role][name]).to(t),
                t,
            )
            for name, t in wide[role].items()
        }
        for role, params in uploads.items()
    }


@torch.no_grad()
def taken_in(
    logits: Callable[[Tensor], Tensor], data: Data, federation: Federation, bad: Array
) -> float:
    """The share of honest clients' test pictures that, once marked, are taken for class 0."""
    honest = [c for c in range(federation.clients) if c not in bad]
    rows = torch.from_numpy(np.concatenate([federation.test[c] for c in honest])).to(data.y.device)
    rows = rows[data.y[rows] != TARGET]
    found = [logits(mark(data.x[part])).argmax(-1) for part in torch.split(rows, 1000)]
    return float((torch.cat(found) == TARGET).double().mean())


def _noise(moved: Slots, generator: torch.Generator) -> Slots:
    """A random direction, in the form of one client's move."""
    return map_slots(
        lambda t: torch.randn(t.shape[1:], generator=generator, dtype=torch.float64).to(t), moved
    )


def _along(values: Tensor, like: Tensor) -> Tensor:
    """One value a client, in the shape of stacked tensors."""
    return values.to(like.device).reshape(-1, *[1] * (like.dim() - 1))
