"""The phases of a run, in their order: what both engines play."""

from dataclasses import replace

from fedpn.federated.conductor import check_rule
from fedpn.federated.heads import make_head
from fedpn.federated.personal import Adapt, Believe, Calibrate, FitRouter
from fedpn.federated.phase import Phase
from fedpn.federated.training import Train
from fedpn.routing.routers import Router, make_router
from fedpn.runs.config import Config
from fedpn.runs.evaluate import Judge


def phases_of(config: Config) -> list[Phase]:
    """All that clients and server do once the network is settled."""
    router = router_of(config)
    phases: list[Phase] = [
        Train(config.method, config.train, config.seed, config.rounds, config.faults.stragglers),
    ]
    head = make_head(config.head)
    if head is not None:
        phases += head.phases()
    phases.append(Adapt(config.method, config.train.batch, config.seed))
    if router is not None:
        phases += [FitRouter(router), Calibrate(router, config.routing)]
    if config.rule:
        phases.append(Believe(config.routing))
    phases.append(Judge(router, config.rule))
    check_rule(phases, config.aggregation)
    return phases


def router_of(config: Config) -> Router | None:
    """The router of a run, where it has one."""
    return make_router(replace(config.routing, router=config.router)) if config.router else None
