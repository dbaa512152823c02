"""What a node has before it when a server asks: its policy, its data, its place in the run."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from fedpn import __version__
from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, not_finite, public
from fedpn.federated.columns import column_phases
from fedpn.federated.moments import SumMoments
from fedpn.federated.phase import Phase
from fedpn.federated.settings import EngineSettings, FaultSettings
from fedpn.federated.site import Setup
from fedpn.flower.app import own, policy, shelf
from fedpn.flower.app.policy import Policy
from fedpn.flower.app.records import Order, read_config, read_order
from fedpn.flower.app.share import Share, open_share
from fedpn.flower.app.state import NodeState, check_name
from fedpn.flower.app.told import Told
from fedpn.runs.config import Config
from fedpn.runs.phases import change_phases, phases_of

Node = Mapping[str, Any]


@dataclass(frozen=True)
class Visit:
    """All that a node has before it when it is told something."""

    order: Order
    config: Config  # as the federation has it
    drawing: Config  # the same, with the seed of this node's own draws, and what it keeps back
    policy: Policy
    share: Share
    state: NodeState
    masked: bool  # by what masks it, not by what a server says
    wary: bool  # whether it uploads in no other way

    def setup(self) -> Setup:
        key = (self.order.run, self.order.config, self.order.model)
        make = lambda: self.share.setup(self.config, self.order.model)  # noqa: E731
        return shelf.held("setup", key, make)

    def phase(self) -> Phase:
        """The phase that the server names."""
        change = change_phases(self.config, leaves=False)
        columns = column_phases(self.share.dataset.features, self.config.data.categories)
        before = [*columns, SumMoments()]
        phases = [*before, *phases_of(self.drawing), *change]
        for phase in phases:
            played = self.config.rounds or not phase.remembers
            if phase.name == self.order.phase and phase.sums and played:
                return phase
        raise Told(f"this node's fedpn knows no phase {self.order.phase!r}")

    def memory(self, setup: Setup) -> Slots:
        """What the node remembers of its last round that counted, or has at first."""
        labels = setup.labels(self.share.rows)
        first = self.config.method.enroll(setup.model.task, setup.fresh, labels)
        if not self.order.base:
            return first
        kept = self.state.load(self.order.base, tuple(first))
        # Files sort their names; sums over entries depend on their order in the last bits.
        return {role: {name: kept[role][name] for name in first[role]} for role in first}

    def check_question(self, phase: Phase | None, server: Slots) -> str:
        """Refuses what is no state of a server, and other questions of a kind than were answered.

        None is the last question: to make the node's own model. Returns the question's mark.
        """
        broken = not_finite({"model": server.get("model", {})}) or _not_a_number(server)
        if broken:
            raise Told(f"the server's {broken} is not finite")
        name, most = "personalise", own.OTHERWISE
        if phase is not None:
            name = phase.name
            if phase.remembers:
                most = self.config.rounds + own.SLACK
                self._check_form(server)
        mark = own.question(name, server, self.order.round, self.order.model)
        own.refuse_others(self.state.place / own.DIARY, name, mark, most)
        return mark

    def _check_form(self, server: Slots) -> None:
        setup, method = self.setup(), self.config.method
        expected = flatten(public(method.init(setup.model.task, setup.fresh)))
        found = flatten(server)
        same = found.keys() == expected.keys() and all(
            found[n].shape == t.shape and found[n].dtype == t.dtype for n, t in expected.items()
        )
        if not same:
            raise Told("the server's model is not of the form that was agreed on")


def _not_a_number(slots: Slots) -> str:
    """The first tensor that holds something undefined; limits may well be infinite."""
    return next((name for name, t in flatten(slots).items() if t.isnan().any()), "")


def begin(content: RecordDict, node: Node, masked: bool) -> Visit:
    """Reads a message, and refuses what the node does not allow."""
    if "state-dir" not in node:
        raise Told("a node needs state-dir=PATH, where it keeps what is its own")
    home, has_data = Path(str(node["state-dir"])), "data" in node
    allowed = policy.read_policy(home)
    try:
        order = read_order(content)
        refuse_version(order.version)
        policy.refuse_code(order.config, allowed)
        config = read_config(order.config)
        policy.check(config, allowed, has_data)
    except UserError as error:
        raise Told(str(error)) from None
    # Faults are made on purpose in a simulator only; how this machine works is its own affair.
    config = replace(config, faults=FaultSettings(), engine=EngineSettings())
    check_name(order.run)
    own.Asked(home, allowed).note(order.run)
    drawing = config
    if has_data:
        drawing = replace(config, seed=own.own_seed(home, f"draws of {order.run}"))
    if allowed.copies == "never" or (allowed.copies == "masked" and has_data and not masked):
        drawing = replace(drawing, data=replace(config.data, copies="each"))
    key = (order.run, order.config, str(home), node.get("data"))
    share = shelf.held("share", key, lambda: _open(node, config, home))
    if len(share.rows) < allowed.least_rows:
        raise Told(f"this node's policy: it has fewer than {allowed.least_rows} training rows")
    policy.check_steps(config, allowed, len(share.rows))
    state = NodeState(home, order.run, share.fingerprint)
    own.refuse_other_settings(state.place, order.config)
    wary = allowed.secure or bool(node.get("secure", False))
    return Visit(order, config, drawing, allowed, share, state, masked, wary)


def refuse_version(theirs: str) -> None:
    """Refuses a server whose fedpn speaks otherwise: the first two numbers tell.

    >>> refuse_version(__version__)
    """
    if theirs.split(".")[:2] != __version__.split(".")[:2]:
        told = theirs or "older"
        raise UserError(
            f"its fedpn is {__version__} and the server's is {told}: install the same on both"
        )


def _open(node: Node, config: Config, home: Path) -> Share:
    """Opens the node's share; what is wrong with files of its own is for its own log."""
    try:
        return open_share(node, config, home)
    except UserError as error:
        if "data" not in node:
            raise
        print(f"fedpn: {error}", file=sys.stderr, flush=True)
        raise Told("its data cannot be read as the settings ask; its log tells why") from None
