"""The phases of a run, in their order: what both engines play."""

from dataclasses import replace

from fedpn.federated.conductor import check_rule
from fedpn.federated.gate import gate_phases
from fedpn.federated.heads import make_head
from fedpn.federated.personal import Adapt, Calibrate, FitRouter
from fedpn.federated.phase import Phase
from fedpn.federated.pool import Pool
from fedpn.federated.training import Train
from fedpn.routing.routers import Router, make_router
from fedpn.routing.rules import RULES
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
    phases += pooling(config)
    phases.append(Adapt(config.method, config.train.batch, config.seed, config.train.balance))
    if head is not None and config.rule:
        phases += head.personal()
    if router is not None:
        phases.append(FitRouter(router))
    phases.append(Calibrate(router, rules_of(config), config.rule, config.routing))
    phases.append(Judge(router, config.rule))
    check_rule(phases, config.aggregation)
    return phases


def pooling(config: Config) -> list[Phase]:
    """What all clients' rows look like, and how well the federation's model answers them."""
    if not config.may_pool:
        return []
    phases = [*gate_phases(config.routing.strangers)]
    return [*phases, Pool(config.routing.set_kind)] if config.rule else phases


def rules_of(config: Config) -> tuple[str, ...]:
    """The rules whose answers are compared: the one that counts, and those of the table."""
    if not config.rule:
        return ()
    kinds = [k for k, rule in RULES.items() if config.router or not rule.needs_router]
    return tuple(dict.fromkeys([*kinds, config.rule]))


def router_of(config: Config) -> Router | None:
    """The router of a run, where it has one."""
    return make_router(replace(config.routing, router=config.router)) if config.router else None
