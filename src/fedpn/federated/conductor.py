"""The only loop that conducts a federation: who is asked, what counts, what is kept.

It knows neither how clients are asked (a `Transport` does: the simulator, or Flower's messages) nor
what they are asked to do (phases do).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from fedpn.core.errors import UserError
from fedpn.core.trees import Params, Slots, map_slots, not_finite
from fedpn.data.dataset import Array
from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.checkpoint import Journal, State
from fedpn.federated.gather import Total, lengths
from fedpn.federated.listener import Listener, Stopped
from fedpn.federated.phase import Phase


class Heard(NamedTuple):
    """What came back from the clients that were asked."""

    total: Total | None  # None: nothing that counts
    loss: float | None
    dropped: list[int]  # vanished before they could answer
    refused: list[int]  # answered what is not finite, or too long a move
    cost: Mapping[str, Any] = MappingProxyType({})  # bytes sent and received, seconds


class Transport(Protocol):
    """How clients are asked."""

    def muster(self) -> int:
        """Looks who takes part; returns how many clients there are."""

    def gather(self, phase: Phase, state: State, clients: Array, listener: Listener) -> Heard:
        """Asks clients for statistics, which are summed."""

    def visit(
        self, phases: Sequence[Phase], server: Slots, listener: Listener
    ) -> dict[int, dict[str, Any]]:
        """Lets all clients play phases of their own; returns what these tell, by client."""

    def probe(self, server: Slots) -> float | None:
        """How good the server's model is by now, where that can be told."""

    def keep(self) -> tuple[Params, Mapping[str, str]]:
        """What a checkpoint must hold beside the server."""

    def restore(self, kept: Params, about: Mapping[str, str]) -> None:
        """Goes back to what a checkpoint held."""

    def failure(self, rounds: int) -> Exception:
        """Why a run ends in which so many rounds in a row came to nothing."""


@dataclass(frozen=True)
class Conducted:
    """What a federation came to."""

    server: Slots
    records: dict[int, dict[str, Any]] = field(default_factory=dict)  # by client, by phase


def conduct(
    phases: Sequence[Phase],
    transport: Transport,
    first: Slots,
    journal: Journal,
    listener: Listener,
    patience: int = 3,
) -> Conducted:
    """Plays phase after phase, from the last checkpoint where there is one.

    Rounds are kept as they go. Whatever comes after them begins anew when a run goes on: it is
    short, and what it draws depends on seeds alone.
    """
    state = journal.load(State(first), transport.restore)
    records: dict[int, dict[str, Any]] = {}
    for group in _groups(phases):
        phase = group[0]
        listener.phase(phase.name)
        if phase.remembers:
            state = _play_rounds(phase, transport, state, journal, listener, patience)
        elif phase.sums:
            state = _play_once(phase, transport, state, listener)
        else:
            for client, told in transport.visit(group, state.server, listener).items():
                records[client] = records.get(client, {}) | told
    return Conducted(state.server, records)


def _groups(phases: Sequence[Phase]) -> list[list[Phase]]:
    """Phases in which clients go on alone make one visit."""
    groups: list[list[Phase]] = []
    for phase in phases:
        if groups and not phase.sums and not groups[-1][-1].sums:
            groups[-1].append(phase)
        else:
            groups.append([phase])
    return groups


def _play_once(phase: Phase, transport: Transport, state: State, listener: Listener) -> State:
    heard = transport.gather(phase, state, phase.joining(transport.muster(), 0), listener)
    if heard.total is None:
        raise transport.failure(1)
    server = phase.server(state.server, heard.total)
    _check(server, f"{phase.name!r}")
    return replace(state, server=server)


def _play_rounds(
    phase: Phase,
    transport: Transport,
    state: State,
    journal: Journal,
    listener: Listener,
    patience: int,
) -> State:
    empty = 0
    while state.round < phase.rounds:
        began = time.perf_counter()
        joined = phase.joining(transport.muster(), state.round)
        heard = transport.gather(phase, state, joined, listener)
        before = state.server
        counted = heard.total is not None
        server = before if heard.total is None else phase.server(before, heard.total)
        _check(server, f"round {state.round + 1}")
        state = State(server, state.round + 1, state.counted or counted)
        line = {
            "round": state.round,
            "loss": heard.loss,
            "joined": len(joined),
            "dropped": heard.dropped,
            "refused": heard.refused,
            "norm": _moved(before, server),
            "seconds": time.perf_counter() - began,
            "accuracy": transport.probe(server),
            **heard.cost,
        }
        _tell(line, phase, journal, listener)
        empty = 0 if counted else empty + 1
        last = state.round == phase.rounds
        stop = listener.stopping()
        if stop or last or journal.is_due(state.round):
            journal.save(state, *transport.keep())
        if empty >= patience or (last and not state.counted):
            raise transport.failure(empty)
        if stop and not last:
            raise Stopped(f"after round {state.round} of {phase.rounds}")
    return state


def _check(server: Slots, when: str) -> None:
    """A server that has broken down is never kept: the checkpoint before stays."""
    name = not_finite(server)
    if name:
        raise UserError(
            f"{when} ended the training: the server's {name} is no longer finite, though each "
            "upload was; lower the learning rate, or bound moves with faults.max_norm"
        )


def _tell(line: dict[str, Any], phase: Phase, journal: Journal, listener: Listener) -> None:
    journal.write(line)
    lost = len(line["dropped"]) + len(line["refused"])
    facts = {"loss": line["loss"], "accuracy": line["accuracy"], "left out": lost or None}
    listener.progress(phase.name, line["round"], phase.rounds, **facts)
    numbers = {k: float(v) for k, v in line.items() if isinstance(v, int | float)}
    listener.round(line["round"], numbers)


def _moved(before: Slots, after: Slots) -> float:
    """How far the server's model went."""
    if before is after or not after.get("model"):
        return 0.0
    return float(lengths(before, map_slots(lambda t: t[None], {"model": after["model"]})))


def check_rule(phases: Sequence[Phase], settings: AggregationSettings) -> None:
    """Refuses a rule that must see moves where a phase sends other sums."""
    for phase in phases:
        if settings.rule != "mean" and phase.sums and not phase.is_move and not phase.open:
            raise UserError(
                f"aggregation.rule={settings.rule} compares what clients moved a model by, and the "
                f"phase {phase.name!r} sums other statistics; use aggregation.rule=mean"
            )
