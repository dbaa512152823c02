"""The phases of a run, in their order: what both engines play."""

from collections.abc import Sequence
from dataclasses import replace

from fedpn.federated.conductor import check_rule
from fedpn.federated.copies import LookForCopies
from fedpn.federated.gate import gate_phases
from fedpn.federated.heads import make_head
from fedpn.federated.late import CatchUp
from fedpn.federated.personal import Adapt, Calibrate, FitRouter
from fedpn.federated.phase import Phase
from fedpn.federated.pool import Pool
from fedpn.federated.together import side_by_side
from fedpn.federated.training import Train
from fedpn.routing.routers import Router, make_router
from fedpn.routing.rules import RULES, find_rule
from fedpn.runs.config import Config
from fedpn.runs.evaluate import Judge


def phases_of(config: Config) -> list[Phase]:
    """All that clients and server do once the network is settled."""
    router = router_of(config)
    phases: list[Phase] = [
        Train(config.method, config.train, config.seed, config.rounds, config.faults.stragglers),
    ]
    phases += copies_looked_for(config)
    head = make_head(config.head)
    phases += pooling(config, head.phases() if head is not None else [])
    train, method = config.train, config.method
    phases.append(Adapt(method, train.batch, config.seed, train.balance, train.least))
    if head is not None and config.rule:
        phases += head.personal()
    if router is not None:
        phases.append(FitRouter(router))
    phases.append(Calibrate(router, rules_of(config), config.rule, config.routing))
    adapts = bool(method.adapt_epochs or method.adapt_steps)
    phases.append(Judge(router, config.rule, train.least if adapts else 0))
    check_rule(phases, config.aggregation)
    return phases


def late_phases(config: Config) -> list[Phase]:
    """All that a client does that comes when the rounds are over."""
    rounds = Train(config.method, config.train, config.seed)
    catch_up = CatchUp(rounds, config.train.late if config.rounds else 0)
    return [catch_up, *(phase for phase in phases_of(config) if not phase.sums)]


def change_phases(config: Config, leaves: bool) -> list[Phase]:
    """The phase by which a head in closed form takes a client in, or lets it go; else none."""
    head = make_head(config.head)
    change = None if head is None else head.change(leaves)
    return [] if change is None else [change]


def joining_phases(config: Config) -> list[Phase]:
    """All that is done when a client joins a federation that is finished."""
    return [*change_phases(config, leaves=False), *late_phases(config)]


def copies_looked_for(config: Config) -> list[Phase]:
    """The phase that looks for rows that several clients have, where something is promised and
    nothing guards what clients send that would not guard this."""
    asked = (config.routing.risk or config.routing.sets) and config.may_pool
    return [LookForCopies(config.data.copies == "each")] if asked else []


def pooling(config: Config, head: Sequence[Phase] = ()) -> list[Phase]:
    """The phases of a head, then how well the federation's model answers all clients' rows; beside
    them, in the same turns, what these rows look like."""
    if not config.may_pool:
        return list(head)
    counts = [Pool(config.routing, find_rule(config.rule).weighs)] if config.rule else []
    return side_by_side([*head, *counts], gate_phases(config.routing.strangers))


def rules_of(config: Config) -> tuple[str, ...]:
    """The rules whose answers are compared: the one that counts, and those of the table."""
    if not config.rule:
        return ()
    kinds = [k for k, rule in RULES.items() if config.router or not rule.needs_router]
    return tuple(dict.fromkeys([*kinds, config.rule]))


def router_of(config: Config) -> Router | None:
    """The router of a run, where it has one."""
    return make_router(replace(config.routing, router=config.router)) if config.router else None
