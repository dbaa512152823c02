"""Routers: how little an input is the client's own, from what both models say of it.

A router is a frozen dataclass with two methods. `fit` learns its state, named tensors, from the
client's training rows; `score` rates rows, higher = less its own. The state has its own slot and
its own file of a bundle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedpn.core.bounds import Share
from fedpn.core.errors import UserError
from fedpn.core.gaussian import Gaussians, Kind, fit, sums
from fedpn.core.settings import find_object, one_of
from fedpn.core.trees import Params
from fedpn.routing.opinion import Opinion
from fedpn.routing.scores import POSTERIOR_SCORES, SCORES
from fedpn.routing.settings import RoutingSettings


@dataclass(frozen=True)
class Router:
    """The template: a router without state."""

    def fit(self, local: Opinion, shared: Opinion, labels: Tensor) -> Params:
        """Learns the router's state from both models' opinions of the client's training rows."""
        return {}

    def score(self, local: Opinion, shared: Opinion, state: Params) -> Tensor:  # [B]
        """Rates rows: higher = less the client's own."""
        raise NotImplementedError


@dataclass(frozen=True)
class Score(Router):
    """By an uncertainty of the client's own model."""

    name: str

    @classmethod
    def named(cls, name: str, settings: RoutingSettings) -> "Score":
        return cls(name)

    def score(self, local: Opinion, shared: Opinion, state: Params) -> Tensor:
        return SCORES[self.name](local)


@dataclass(frozen=True)
class OwnScore(Router):
    """By a function of the user's own, of what the client's own model says."""

    rate: Callable[[Opinion], Tensor]

    def score(self, local: Opinion, shared: Opinion, state: Params) -> Tensor:
        return self.rate(local)


@dataclass(frozen=True)
class GaussianRouter(Router):
    """By Gaussians, one a class, fitted to the embeddings of the client's training rows."""

    covariance: Kind = "full"
    shrinkage: Share = 0.1

    def fit(self, local: Opinion, shared: Opinion, labels: Tensor) -> Params:
        seen = sums(local.z, labels, local.probs.shape[-1])
        fitted = fit(seen, self.covariance, self.shrinkage)
        return {name: value.to(local.z.dtype) for name, value in fitted._asdict().items()}

    def score(self, local: Opinion, shared: Opinion, state: Params) -> Tensor:
        return -Gaussians(**state).log_density(local.z)


@dataclass(frozen=True)
class Foreign(Router):
    """By how much the global model believes in classes of which the client has no rows."""

    def fit(self, local: Opinion, shared: Opinion, labels: Tensor) -> Params:
        counts = torch.bincount(labels, minlength=shared.probs.shape[-1])
        return {"foreign": counts == 0}

    def score(self, local: Opinion, shared: Opinion, state: Params) -> Tensor:
        return (shared.probs * state["foreign"].to(shared.probs)).sum(-1)


ROUTERS: dict[str, Callable[[RoutingSettings], Router]] = {
    **{name: partial(Score.named, name) for name in SCORES},
    "gaussian": lambda settings: GaussianRouter(settings.covariance, settings.shrinkage),
    "foreign": lambda settings: Foreign(),
}


def make_router(settings: RoutingSettings) -> Router:
    """Takes a router from the table, or the user's own: module:Class or file.py:Class."""
    if ":" not in settings.router:
        one_of("routing.router", settings.router, list(ROUTERS))
        return ROUTERS[settings.router](settings)
    found = find_object("routing.router", settings.router, "router")
    if isinstance(found, type) and issubclass(found, Router):
        return found()
    if isinstance(found, type) or not callable(found):
        raise UserError(
            f"routing.router: {settings.router!r} is neither a class below Router nor a score, a "
            "function of an Opinion"
        )
    return OwnScore(found)


def needs_posterior(router: str) -> bool:
    """Tells whether a router reads what only a posterior network has."""
    return router in POSTERIOR_SCORES
