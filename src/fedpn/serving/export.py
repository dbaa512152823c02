"""One client's part of a run in a folder of its own, with a card; and new thresholds for it."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from fedpn.core import store
from fedpn.routing.rule import Rule
from fedpn.routing.rules import to_state
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import Standards
from fedpn.serving.bundle import SHARED, SLOTS, Bundle, open_bundle, place_of, version_of
from fedpn.serving.card import card

CARD = "MODEL_CARD.md"


def export(
    path: Path,
    client: int | str | None,
    out: Path,
    trust: bool = False,
    more: Callable[[Path], None] = lambda folder: None,
) -> Bundle:
    """Writes one client's part alone into a new folder, which `open_bundle` takes as well.

    The folder is there once it is whole; `more` may add to it before.
    """
    path = place_of(path)
    bundle = open_bundle(path, client, trust)
    index = bundle.about.clients.index(bundle.client)
    with store.drafted(out) as draft:
        for file in SHARED.values():
            store.write_tensors(draft / file, store.read_tensors(path / file)[0])
        for file in SLOTS.values():
            tensors, _ = store.read_tensors(path / file, f"{index}/")
            store.write_tensors(draft / file, {f"0/{name}": t for name, t in tensors.items()})
        tree = store.read_json(path / "bundle.json")
        recipe = bundle.about.recipe
        tree |= {"clients": [bundle.client], "recipe": None if recipe is None else asdict(recipe)}
        store.write_json(draft / "bundle.json", tree)
        for name in store.code_of(path):
            store.make_folder(draft / store.CODE)
            store.write_text(draft / name, store.read_text(path / name))
        store.seal(draft)
        write_card(draft, replace(bundle, version=version_of(draft)), path)
        more(draft)
    return bundle


def write_card(folder: Path, bundle: Bundle, run: Path) -> None:
    """The model card, with the figures of the run where these are at hand."""
    figures = run / "metrics.json"
    metrics = store.read_json(figures) if figures.exists() else None
    store.write_text(folder / CARD, card(bundle, metrics))


def recalibrate(
    folder: Path, rule: Rule | None, standards: Standards, routing: RoutingSettings | None
) -> None:
    """Replaces the thresholds and promises of an exported folder."""
    tree = store.read_json(folder / "bundle.json")
    if rule is not None and routing is not None:
        state = to_state({routing.rule: rule})
        store.write_tensors(folder / SLOTS["rule"], {f"0/{n}": t for n, t in state.items()})
        tree["routing"] = asdict(routing)
    state = {f"0/{name}": t.contiguous() for name, t in standards._asdict().items()}
    store.write_tensors(folder / SLOTS["standards"], state)
    store.write_json(folder / "bundle.json", tree)
    store.seal(folder)
    write_card(folder, open_bundle(folder), folder)
