"""What a client needs to answer: models, router, rule, names and provenance, in a folder.

A run's directory is such a folder for all its clients; `export` makes one for a single client. Each
slot of a client has its file: its model's own part, its router's state, its rule.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import fedpn
from fedpn.core import store
from fedpn.core.code import code_from
from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.core.settings import build, named_code, need_trust
from fedpn.core.trees import Params, Slots
from fedpn.data.recipe import Recipe, of_client, read_recipe
from fedpn.federated.privacy import Account
from fedpn.federated.settings import HeadSettings
from fedpn.nn.blueprint import Blueprint, read_blueprint
from fedpn.routing.rule import Rule
from fedpn.routing.rules import from_state
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import Standards, of_state
from fedpn.serving.sound import check_model, check_numbers

FORMAT = 5
SLOTS = {
    "own": "clients.safetensors",
    "head": "heads.safetensors",
    "router": "routers.safetensors",
    "rule": "rules.safetensors",
    "standards": "standards.safetensors",
}
SHARED = {
    "model": "shared.safetensors",
    "head": "head.safetensors",
    "gate": "gate.safetensors",
    "pool": "pool.safetensors",
}
FILES = ["bundle.json", *SHARED.values(), *SLOTS.values()]


@dataclass(frozen=True)
class About:
    """What models are of, and how they came about: plain values."""

    blueprint: Blueprint
    classes: tuple[str, ...]
    clients: tuple[str, ...]  # their names
    features: tuple[str, ...]  # of a table, the columns; none where they have no names
    head: HeadSettings
    routing: RoutingSettings | None  # None without a switch
    provenance: Mapping[str, Any]
    recipe: Recipe | None = None  # of a table, how its columns become numbers, where not all are


@dataclass(frozen=True)
class Bundle:
    """One client's means of answering."""

    client: str
    about: About
    shared: Params | None
    head: Params  # the state of a head in closed form, where there is one
    gate: Params  # what strangers are told by, where the run has a gate
    pool: Params  # what all clients' held-out rows say together, to calibrate again by
    own: Params
    own_head: Params  # a client's own head in closed form, where it has one
    router: Params
    rule: Rule | None
    standards: Standards
    code: Path | None = None  # a folder with files of the user's own that it may name
    version: str = ""  # a digest of the files that it was read from

    @property
    def blueprint(self) -> Blueprint:
        return self.about.blueprint

    @property
    def classes(self) -> tuple[str, ...]:
        return self.about.classes

    @property
    def features(self) -> tuple[str, ...]:
        return self.about.features

    @property
    def predictor(self) -> Params:
        return (self.shared or {}) | self.own


def provenance(
    dataset: str, note: str, algorithm: str, rounds: int, seed: int, account: Account | None = None
) -> dict[str, Any]:
    """Where models come from, and what was promised to whom they come from."""
    return {
        "fedpn": fedpn.__version__,
        "torch": str(torch.__version__),
        "dataset": dataset,
        "note": note,
        "algorithm": algorithm,
        "rounds": rounds,
        "seed": seed,
        "privacy": account.words() if account is not None else "",
    }


def write_models(out: Path, about: About, shared: Slots, members: Sequence[Slots] | None) -> None:
    """Writes all clients' models; without members those are elsewhere, with their nodes.

    `shared` has the slots of `SHARED`, each where there is one.
    """
    for slot, file in SHARED.items():
        store.write_tensors(out / file, shared.get(slot, {}))
    for slot, file in SLOTS.items():
        tensors = {
            f"{index}/{name}": t
            for index, member in enumerate(members or ())
            for name, t in member.get(slot, {}).items()
        }
        store.write_tensors(out / file, tensors)
    store.write_json(out / "bundle.json", _to_tree(about, elsewhere=members is None))


def _to_tree(about: About, elsewhere: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": asdict(about.blueprint),
        "classes": list(about.classes),
        "clients": list(about.clients),
        "features": list(about.features),
        "head": asdict(about.head),
        "routing": None if about.routing is None else asdict(about.routing),
        "provenance": dict(about.provenance),
        "recipe": None if about.recipe is None else asdict(about.recipe),
        "elsewhere": elsewhere,
    }


def read_members(path: Path) -> list[Slots]:
    """All clients' slots of a run."""
    store.verify(path, list(SLOTS.values()))
    files = {slot: store.read_tensors(path / file)[0] for slot, file in SLOTS.items()}

    def part(tensors: Params, client: int) -> Params:
        mark = f"{client}/"
        return {n.removeprefix(mark): t for n, t in tensors.items() if n.startswith(mark)}

    count = len(read_about(path).clients)
    return [{slot: part(file, c) for slot, file in files.items()} for c in range(count)]


def read_about(path: Path) -> About:
    """Reads what the models of a folder are of."""
    return _from_tree(store.read_json(path / "bundle.json"), path)


def about_client(about: About, client: str) -> About:
    """The same for one client: tables are read as it writes them."""
    return about if about.recipe is None else replace(about, recipe=of_client(about.recipe, client))


def _from_tree(tree: Any, path: Path) -> About:
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        found = tree.get("format") if isinstance(tree, dict) else None
        raise UserError(
            f"{path} is of format {found}, and this fedpn reads format {FORMAT}: answer with the "
            "version that wrote it, or train anew with `fedpn run`"
        )
    try:
        routing = tree["routing"]
        about = About(
            read_blueprint(tree["model"]),
            _names(tree, "classes"),
            _names(tree, "clients"),
            _names(tree, "features"),
            build(HeadSettings, tree["head"], "head"),
            None if routing is None else build(RoutingSettings, routing, "routing"),
            dict(tree["provenance"]),
            None if tree["recipe"] is None else read_recipe(tree["recipe"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        why = error if isinstance(error, UserError) else repr(error)
        raise store.Damaged(f"{path / 'bundle.json'} is damaged: {why}") from None
    _check_names(about, path / "bundle.json")
    return about


def _names(tree: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = tree[key]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise UserError(f"its {key} are no list of names")
    return tuple(found)


def _check_names(about: About, path: Path) -> None:
    """Refuses lists of names that cannot be those of the network's classes, columns and clients."""
    shape, classes = about.blueprint.shape, about.blueprint.classes
    columns = shape[0] if len(shape) == 1 else 0
    known, width = len(about.features) in (0, columns), columns
    if about.recipe is not None:
        known, width = about.features == about.recipe.names, about.recipe.width
    wrong = {
        "classes": len(about.classes) != classes or len(set(about.classes)) != classes,
        "features": not known or width != columns,
        "clients": not about.clients or len(set(about.clients)) != len(about.clients),
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise store.Damaged(f"{path} is damaged: its {name} are not those of its network")


def open_bundle(path: Path, client: int | str | None = None, trust: bool = False) -> Bundle:
    """Reads one client's part of a run or of an exported folder.

    Code that it names is imported, and so run, only where the folder is trusted.
    """
    path = place_of(path)
    version = version_of(path)
    store.verify(path, ["bundle.json"])
    about = read_about(path)
    tree = _to_tree(about, elsewhere=False)
    need_trust(tree, path, trust)
    if named_code(tree):
        store.verify(path, store.code_of(path))
    if store.read_json(path / "bundle.json").get("elsewhere"):
        raise UserError(
            f"{path} is a server's: each node has its own model, below its state directory as "
            "`bundle`; ask there"
        )
    store.verify(path, FILES)
    common = {slot: store.read_tensors(path / file)[0] for slot, file in SHARED.items()}
    alike = about.routing is None and not store.tensor_names(path / SLOTS["own"])
    index = 0 if alike and client is None else _find(about.clients, client, path)
    slots = {slot: store.read_tensors(path / file, f"{index}/")[0] for slot, file in SLOTS.items()}
    kept = path.resolve() / store.CODE
    with code_from(kept):
        _check_tensors(about, common, slots, path)
        rule = None if about.routing is None else from_state(about.routing.rule, slots["rule"])
    store.verify(path, FILES)
    if version_of(path) != version:  # else parts of two versions could be read as one
        raise store.Damaged(f"{path} was replaced while it was read: open it again")
    client = about.clients[index]
    return Bundle(
        client,
        about_client(about, client),
        common["model"] or None,
        common["head"],
        common["gate"],
        common["pool"],
        slots["own"],
        slots["head"],
        slots["router"],
        rule,
        of_state(slots["standards"]),
        kept,
        version,
    )


def version_of(path: Path) -> str:
    """Which models a folder holds: a digest of the checksums of all that answers depend on."""
    file = place_of(path) / store.MANIFEST
    sums = store.read_json(file)
    if not isinstance(sums, dict):
        raise store.Damaged(f"{file} is damaged: it holds no checksums")
    parts = {k: v for k, v in sums.items() if k in FILES or k.startswith(f"{store.CODE}/")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _check_tensors(about: About, common: Slots, slots: Slots, path: Path) -> None:
    alone = about.routing is not None
    check_model(about.blueprint, common["model"], slots["own"], path, alone)
    check_numbers({SHARED[s]: params for s, params in common.items()}, path, finite=True)
    check_numbers({SLOTS[s]: slots[s] for s in ("own", "head")}, path, finite=True)
    limits = {SLOTS[s]: slots[s] for s in ("router", "rule", "standards")}
    check_numbers(limits, path, finite=False)  # a limit that nothing passes is infinite


def place_of(path: Path) -> Path:
    """Where the files are: in the directory itself, or below a node's state directory."""
    if not path.is_dir():
        raise UserError(f"{path} is not a directory: give a run or an exported folder")
    within = path / "bundle"
    return within if (within / "bundle.json").exists() else path


def _find(names: Sequence[str], client: int | str | None, path: Path) -> int:
    if client is None:
        if len(names) == 1:
            return 0
        raise UserError(f"{path} holds {len(names)} clients: say which with --client")
    forms = [composed(name) for name in names]
    if composed(str(client)) in forms:
        return forms.index(composed(str(client)))
    raise UserError(
        f"{path} has no client {client}; it has {', '.join(names[:12])}{' …' * (len(names) > 12)}"
    )
