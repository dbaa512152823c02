"""Asks models for their opinions of rows; the shared one's are computed once, whoever asks."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedpn.core.trees import Params
from fedpn.data.dataset import Array
from fedpn.nn.posterior import PosteriorNetwork
from fedpn.nn.task import Model
from fedpn.routing.opinion import Opinion, join, of_logits, of_posterior

CHUNK = 512  # rows at once: their tensors stay in the processor's cache


class Embedder:
    """Embeds rows of the data: by the shared encoder once, by a client's own whenever asked."""

    def __init__(self, model: Model, x: Tensor, base: Params, owned: Collection[str] = ()) -> None:
        self.model, self.x, self.owned = model, x, owned
        self.base = {n: t for n, t in base.items() if n in model.task.encoder_names}
        self.store = torch.empty(0)
        self.known = torch.zeros(len(x), dtype=torch.bool, device=x.device)

    def __call__(self, rows: Array, own: Params | None = None) -> Tensor:
        """Returns z of the rows, by the shared encoder with the client's own entries in it."""
        index = torch.from_numpy(rows).to(self.x.device)
        mine = {n: t for n, t in (own or {}).items() if n in self.owned}
        if mine:
            return self._embed(self.base | mine, index)
        return self.pool(rows)[index]

    def pool(self, rows: Array) -> Tensor:
        """Returns the shared encoder's z for the whole dataset, filled in where rows ask."""
        wanted = torch.from_numpy(rows).to(self.x.device)
        missing = wanted[~self.known[wanted]]
        if len(missing):
            z = self._embed(self.base, missing)
            if not len(self.store):
                self.store = z.new_zeros(len(self.x), z.shape[1])
            self.store[missing] = z
            self.known[missing] = True
        return self.store

    @torch.no_grad()
    def _embed(self, encoder: Params, rows: Tensor) -> Tensor:
        return torch.cat([self.model.embed(encoder, self.x[r]) for r in torch.split(rows, CHUNK)])


class ClosedForm(Protocol):
    """A head in closed form, as an observer asks it."""

    def look(self, model: Model, params: Params, state: Params, x: Tensor, z: Tensor) -> Tensor:
        """What the head sees of inputs and their embeddings."""

    def logits(self, seen: Tensor, state: Params) -> Tensor:
        """How it answers to what it sees, by its state."""

    def likeness(self, seen: Tensor, state: Params) -> Tensor | None:
        """Log odds that inputs look like the client's."""


class OwnSight(NamedTuple):
    """What a client's own head in closed form says of rows."""

    logits: Tensor | None  # [B, K]; None: it answers as the federation's
    likeness: Tensor | None  # [B], log odds of own against others, where their looks tell


class Observer:
    """The models of a federation, before the rows of one process."""

    def __init__(
        self,
        model: Model,
        common: Params | None,
        embed: Embedder,
        head: ClosedForm | None = None,
        state: Params | None = None,
    ) -> None:
        self.model, self.embed = model, embed
        self.common = common  # None where there is no global model
        self.head = head if common is not None else None  # in place of the trained one
        self.state = state or {}  # of the head
        self._sights = torch.empty(0)  # what the head sees of rows that several ask for
        self._sighted = torch.zeros(len(embed.x), dtype=torch.bool)
        self._known = torch.zeros(len(embed.x), dtype=torch.bool)
        self._store: Opinion | None = None

    def shared(self, rows: Array) -> Opinion:
        """The global model's opinion; each row is looked at once."""
        assert self.common is not None, "there is no global model"
        index = torch.from_numpy(rows)
        missing = torch.unique(index[~self._known[index]])
        if len(missing):
            self._keep(missing, self._look(missing))
        assert self._store is not None
        return self._store.take(index)

    @torch.no_grad()
    def _look(self, rows: Tensor) -> Opinion:
        z = self.embed(rows.numpy())
        if self.head is None:
            assert self.common is not None
            return view(self.model, self.common, z)
        parts = []
        for index, part in zip(torch.split(rows, CHUNK), torch.split(z, CHUNK), strict=True):
            parts.append(of_logits(self.head.logits(self._see(index, part), self.state), part))
        return join(parts).map(Tensor.cpu)

    @torch.no_grad()
    def own_sight(self, own: Params, rows: Array) -> OwnSight:
        """What a client's own head says, where it has one."""
        if not own or self.head is None:
            return OwnSight(None, None)
        seen = self.see(rows)
        likeness = self.head.likeness(seen, own)
        logits = self.head.logits(seen, own).cpu() if "matrix" in own else None
        return OwnSight(logits, None if likeness is None else likeness.cpu())

    @torch.no_grad()
    def see(self, rows: Array) -> Tensor:
        """What the head sees of rows; kept, since the heads of several clients may ask."""
        index = torch.from_numpy(rows)
        for missing in torch.split(torch.unique(index[~self._sighted[index]]), CHUNK):
            found = self._see(missing, self.embed(missing.numpy()))
            if not len(self._sights):  # pages that are never written to are never taken
                self._sights = found.new_empty(len(self.embed.x), found.shape[1])
            self._sights[missing.to(found.device)] = found
            self._sighted[missing] = True
        return self._sights[index.to(self._sights.device)]

    def _see(self, rows: Tensor, z: Tensor) -> Tensor:
        assert self.head is not None and self.common is not None
        if self._sighted[rows].all():
            return self._sights[rows.to(z.device)]
        x = self.embed.x[rows.to(z.device)]
        return self.head.look(self.model, self.common, self.state, x, z)

    def local(self, own: Params, rows: Array) -> Opinion:
        """The opinion of a client's model; where it has nothing of its own, the global one's."""
        if not own:
            return self.shared(rows)
        params = (self.common or {}) | own
        return view(self.model, params, self.embed(rows, own))

    def _keep(self, rows: Tensor, opinion: Opinion) -> None:
        if self._store is None:
            size = len(self._known)
            self._store = opinion.map(lambda t: t.new_zeros(size, *t.shape[1:]))
        for kept, new in zip(self._store, opinion, strict=True):
            if kept is not None and new is not None:
                kept[rows] = new
        self._known[rows] = True


@torch.no_grad()
def view(model: Model, params: Params, z: Tensor) -> Opinion:
    """What a model says of embeddings."""
    parts = [opinion_of(model, params, part) for part in torch.split(z, CHUNK)] or [
        opinion_of(model, params, z)
    ]
    return join(parts).map(Tensor.cpu)


def opinion_of(model: Model, params: Params, z: Tensor) -> Opinion:
    if not isinstance(model.network, PosteriorNetwork):
        return of_logits(model.logits(params, z), z)
    return of_posterior(model.posterior(params, z), model.logits(params, z), z)
