"""Do our methods learn what PFLlib's and FL-bench's own classes learn?

    git clone https://github.com/TsingZ0/PFLlib
    git clone https://github.com/KarhouTam/FL-bench
    python benchmarks/peers.py --pfllib PFLlib --flbench FL-bench [--methods fedavg,ditto]

All sides train by plain SGD, from the same rows, first weights and batches. For each method the
file has the accuracy on own rows of the personal and the global model (`accuracy`) and the largest
difference of two weights (`apart`) after all rounds. That difference grows from rounding alone, so
each side is also asked in double precision, for a few short rounds (`exact`): what is left there is
a difference of code, and `differs` names it. Once it is taken away, `without` is what `exact` was
and `agreed` the accuracy of both sides after all rounds; `agreed_double` is that in double
precision, for methods that single precision leaves apart (`--double`). First weights are drawn
in the precision of a run, so accuracies of the two precisions are not to be compared.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import peers_flbench
import peers_pfllib
import torch
from peers_common import Side, apart, play_ours
from peers_methods import METHODS, RATE, Peer, Tree

from fedpn.core import store
from fedpn.core.settings import nest
from fedpn.federated.site import Setup
from fedpn.runs.config import Config, resolve
from fedpn.runs.prepare import prepare

Player = Callable[[Path, str, Config, Setup, bool], Side]
DRIVERS: dict[str, Player] = {
    "pfllib": peers_pfllib.play_theirs,
    "flbench": peers_flbench.play_theirs,
}
SHORT = {"rounds": 3, "train.steps": 10}
FOLDER = Path(__file__).parent


def settings(method: str, budget: Tree, ours: str = "") -> Config:
    """Our run of a method, told as theirs are."""
    algorithm = str(FOLDER / ours) if ours else method
    own = {f"method.{key}": value for key, value in METHODS[method].settings.items()}
    plain = {"method.lr": RATE, "method.momentum": 0.0, "routing.strangers": 0.0}
    return resolve([{"algorithm": algorithm}, nest(budget | plain | own)])


def evened(setup: Setup) -> Setup:
    """The same clients with equally many training rows each."""
    rows = setup.federation
    least = min(map(len, rows.train))
    return replace(setup, federation=replace(rows, train=tuple(r[:least] for r in rows.train)))


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """Double precision."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


def exact(method: str, budget: Tree, play: Player, checkout: Path, peer: Peer) -> Tree:
    """How far weights are apart in double precision, as both are and with nothing that differs."""
    with doubled():
        config = settings(method, budget | SHORT)
        setup = prepare(config)
        theirs = play(checkout, method, config, setup, False)
        found: Tree = {"exact": apart(play_ours(config, setup), theirs)}
        if peer.differs:
            found["without"] = apart(*alike(method, budget | SHORT, play, checkout, peer))
    return found


def alike(method: str, budget: Tree, play: Player, checkout: Path, peer: Peer) -> tuple[Side, Side]:
    """Both sides, ours first, with nothing that differs."""
    config = settings(method, budget, peer.ours)
    setup = evened(prepare(config)) if peer.even else prepare(config)
    mend = peer.mend or bool(peer.ours)
    return play_ours(config, setup), play(checkout, method, config, setup, mend)


def agreed(method: str, budget: Tree, play: Player, checkout: Path, peer: Peer) -> Tree:
    """Accuracy of both sides with nothing that differs, and how far their weights are apart."""
    ours, theirs = alike(method, budget, play, checkout, peer)
    return {"ours": _rounded(ours), "theirs": _rounded(theirs), "apart": apart(ours, theirs)}


def compare(method: str, budget: Tree, checkouts: dict[str, Path]) -> Tree:
    """One method on all sides."""
    config = settings(method, budget)
    setup = prepare(config)
    ours = play_ours(config, setup)
    found: Tree = {"ours": {"accuracy": _rounded(ours)}}
    for name, checkout in checkouts.items():
        play, peer = DRIVERS[name], getattr(METHODS[method], name)
        theirs = play(checkout, method, config, setup, False)
        told: Tree = {"accuracy": _rounded(theirs), "apart": apart(ours, theirs)}
        found[name] = told | exact(method, budget, play, checkout, peer) | {"differs": peer.differs}
    return found


def _rounded(side: Side) -> dict[str, float]:
    return {who: round(share, 5) for who, share in side.accuracy.items()}


def about(asked: Any) -> tuple[Tree, Tree]:
    """The budget, and the head of the file."""
    budget = {"dataset": asked.dataset, "clients": asked.clients, "rounds": asked.rounds}
    budget |= {"train.steps": asked.steps, "train.batch": asked.batch, "data.limit": asked.rows}
    return budget, budget | {"rate": RATE, "seed": 0, "short": SHORT}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pfllib", type=Path, help="a clone of TsingZ0/PFLlib")
    options.add_argument("--flbench", type=Path, help="a clone of KarhouTam/FL-bench")
    options.add_argument("--methods", default=",".join(METHODS))
    options.add_argument("--double", default="scaffold,perfedavg", help="methods, as in --methods")
    options.add_argument("--dataset", default="mnist")
    sizes = {"clients": 10, "rounds": 30, "steps": 40, "batch": 16, "rows": 6000}
    for name, usual in sizes.items():
        options.add_argument(f"--{name}", type=int, default=usual)
    options.add_argument("--out", type=Path, default=Path("results/peers.json"))
    asked = options.parse_args()
    checkouts = {name: path for name in DRIVERS if (path := getattr(asked, name)) is not None}
    torch.set_num_threads(1)
    budget, head = about(asked)
    results: Tree = {"format": 2, "about": head, "methods": {}}
    if asked.out.exists() and store.read_json(asked.out)["about"] == head:
        results = store.read_json(asked.out)  # goes on where it ended
    for method in asked.methods.split(","):
        if method not in results["methods"]:
            results["methods"][method] = compare(method, budget, checkouts)
            store.write_json(asked.out, results)
        found = results["methods"][method]
        for name, checkout in checkouts.items():
            peer = getattr(METHODS[method], name)
            if peer.differs and "agreed" not in found[name]:
                found[name]["agreed"] = agreed(method, budget, DRIVERS[name], checkout, peer)
                store.write_json(asked.out, results)
            if method in asked.double.split(",") and "agreed_double" not in found[name]:
                with doubled():
                    told = agreed(method, budget, DRIVERS[name], checkout, peer)
                found[name]["agreed_double"] = told
                store.write_json(asked.out, results)
        print(method, found, flush=True)


if __name__ == "__main__":
    main()
