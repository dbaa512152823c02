"""Nodes that come to a finished federation, or leave it: one message each, and no round."""

from collections.abc import Sequence

import numpy as np

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import unflatten
from fedpn.federated.checkpoint import State
from fedpn.federated.conductor import Conducted
from fedpn.federated.listener import Listener
from fedpn.federated.phase import Phase
from fedpn.federated.site import Network
from fedpn.flower.app.messages import Messages
from fedpn.flower.app.terms import Terms
from fedpn.runs.config import Config
from fedpn.runs.directory import SERVER, refuse_changes
from fedpn.runs.identity import refuse_other_code
from fedpn.runs.phases import change_phases, phases_of
from fedpn.runs.prepare import draw_network
from fedpn.serving.bundle import read_about


def change(messages: Messages, terms: Terms, listener: Listener) -> tuple[Network, Conducted]:
    """Goes on from a finished run: who is new to it joins, or the one who is named leaves."""
    config, base = terms.config, terms.base
    assert base is not None
    if not (base / SERVER).exists():
        raise UserError(f"--base {base} is no finished run on the SuperLink's machine")
    store.verify(base, ["bundle.json", "config.toml", SERVER])
    about = read_about(base)
    refuse_changes(config, base, but=("clients", "dataset"))
    refuse_other_code(config, base)
    server = unflatten(store.read_tensors(base / SERVER)[0])
    network = draw_network(config, about.blueprint)
    messages.recipe = about.recipe
    messages.settle(network)
    change = next(iter(change_phases(config, bool(terms.leaves))), None)
    if terms.leaves:
        if change is None:
            raise UserError("a head that was trained cannot forget: train anew without the node")
        asked = [terms.leaves]
    else:
        asked = [name for name in messages.names if name not in about.clients]
    if not asked or not set(asked) <= set(messages.names):
        who = f"{terms.leaves} is away" if terms.leaves else "no node is new to it"
        raise UserError(f"--base {base}: {who}; here are {', '.join(messages.names)}")
    if change is not None:
        listener.progress(change.name, 0, len(asked))
        places = np.array([messages.names.index(name) for name in asked])
        heard = messages.gather(change, State(server), places, listener)
        if heard.total is None or heard.dropped or heard.refused:
            raise messages.failure(1)
        server = change.server(server, heard.total)
    new = set(asked)
    gone = new if terms.leaves else [name for name in messages.names if name not in new]
    messages.roster.leave_out(gone)
    return network, Conducted(server, messages.visit(_alone(config), server, listener))


def _alone(config: Config) -> Sequence[Phase]:
    return [phase for phase in phases_of(config) if not phase.sums]
