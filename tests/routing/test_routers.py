"""Routers: what they learn from training rows, and how they rate others."""

from dataclasses import dataclass

import pytest
import torch

from fedpn.core.errors import UserError
from fedpn.core.gaussian import fit, sums
from fedpn.routing.opinion import of_logits
from fedpn.routing.routers import (
    ROUTERS,
    Foreign,
    GaussianRouter,
    Router,
    Score,
    make_router,
    needs_posterior,
)
from fedpn.routing.scores import POSTERIOR_SCORES, SCORES
from fedpn.routing.settings import RoutingSettings


@dataclass(frozen=True)
class Loud(Router):
    """Of one's own: the larger the first logit, the less is the row the client's."""

    def score(self, local, shared, state):
        return local.logits[:, 0]


@dataclass(frozen=True)
class Opaque:
    """No router."""


def rows(count=40, classes=3, dim=2):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % (classes - 1)  # the last class is nobody's
    z = torch.randn(count, dim, generator=generator) + 5.0 * labels[:, None]
    return of_logits(torch.randn(count, classes, generator=generator), z), labels


def test_every_score_is_a_router_and_none_of_another_name():
    assert ROUTERS.keys() == SCORES.keys() | {"gaussian", "foreign"}
    for name in SCORES:
        assert make_router(RoutingSettings(router=name)) == Score(name)
        assert needs_posterior(name) == (name in POSTERIOR_SCORES)
    assert not needs_posterior("gaussian")
    assert not needs_posterior("foreign")


def test_a_score_asks_the_clients_model_alone_and_learns_nothing():
    local, labels = rows()
    router = make_router(RoutingSettings(router="energy"))
    assert router.fit(local, local, labels) == {}
    other = local._replace(logits=torch.full_like(local.logits, torch.nan))
    assert router.score(local, other, {}).equal(-local.logits.logsumexp(-1))


def test_gaussians_rate_by_the_density_of_training_rows():
    local, labels = rows()
    settings = RoutingSettings(router="gaussian", covariance="diagonal", shrinkage=0.3)
    router = make_router(settings)
    assert router == GaussianRouter("diagonal", 0.3)
    state = router.fit(local, local, labels)
    found = fit(sums(local.z.double(), labels, 3), "diagonal", 0.3)
    assert state.keys() == found._asdict().keys()
    assert all(torch.equal(state[name], value.float()) for name, value in found._asdict().items())
    assert torch.allclose(
        router.score(local, local, state), -found.log_density(local.z.double()).float()
    )
    far = local._replace(z=local.z + 100)
    assert (router.score(far, local, state) > router.score(local, local, state)).all()


def test_foreign_is_the_global_models_mass_on_classes_without_rows():
    local, labels = rows()
    shared = of_logits(torch.zeros(4, 3), torch.zeros(4, 2))._replace(
        probs=torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]])
    )
    state = Foreign().fit(local, local, labels)
    assert state["foreign"].tolist() == [False, False, True]
    assert Foreign().score(local, shared, state).tolist() == pytest.approx([0.1, 0.7, 1.0, 0.0])


def test_a_router_of_ones_own():
    name = f"{__name__}:Loud"
    router = make_router(RoutingSettings(router=name))
    local, _ = rows()
    assert router.score(local, local, {}).equal(local.logits[:, 0])
    with pytest.raises(UserError, match="neither a class below Router nor a score"):
        make_router(RoutingSettings(router=f"{__name__}:Opaque"))
    with pytest.raises(UserError, match="cannot import the router"):
        make_router(RoutingSettings(router="nosuch:Thing"))
    with pytest.raises(UserError, match="did you mean 'gaussian'"):
        make_router(RoutingSettings(router="gausian"))
