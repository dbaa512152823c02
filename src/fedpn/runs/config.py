"""Settings: frozen dataclasses from presets, TOML and the command line; unknown keys are errors."""

import difflib
import importlib
import sys
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedpn.federated.aggregation import AggregationConfig
from fedpn.algorithms.base import FedAvg
from fedpn.algorithms import ALGORITHMS
from fedpn.core.errors import UserError
from fedpn.core.bounds import AutoCount, Bounds, Count, Natural, NonNegative, Positive, Share, SomeShare
from fedpn.nn.density import DENSITIES
from fedpn.nn.encoders import ENCODERS
from fedpn.routing.scores import POSTERIOR_SCORES

T = TypeVar("T")
Tree = dict[str, Any]


@dataclass(frozen=True)
class DataConfig:
    """How rows are read and dealt."""

    # auto: natural where the data name their clients, else classes, of two classes dirichlet
    partition: Literal["auto", "classes", "dirichlet", "iid", "natural"] = "auto"
    cards: Count = 3  # classes per client, under `classes`
    beta: Positive = 0.3  # concentration, under `dirichlet`
    label: str = ""  # of a table, the column; "label" where nothing is said
    client: str = ""  # of a table, the column of owners; "client" where there is one
    features: tuple[str, ...] = ()  # of a table, the columns, in this order; none: all others
    image_size: Annotated[int, Bounds(low=0, high=4096)] = 0  # of own images; 0: that of the data
    classes: tuple[str, ...] = ()  # by number; none: those of the data, in their order


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

    encoder: str = "auto"  # lenet5, resnet18, mlp; auto: LeNet-5 for images, an MLP for tables
    dim: Count = 16  # of embeddings
    density: str = "radial"  # of a posterior network, one a class
    layers: Count = 30  # of each density
    norm: Literal["auto", "none", "batch", "group"] = "auto"
    pretrained: str = ""  # of a ResNet, a safetensors file


@dataclass(frozen=True)
class TrainConfig:
    """A client's work in a round, and how the simulator goes about it."""

    steps: Natural = 10  # batches a round
    epochs: Natural = 0  # instead of steps, where set
    batch: Count = 64  # rows
    join: SomeShare = 1.0  # the share of clients in a round
    cohort: AutoCount = 0  # clients stacked at once; 0 or "auto": by the model's size
    device: str = "auto"  # cpu, cuda, mps; a GPU where there is one


@dataclass(frozen=True)
class FaultConfig:
    """What goes wrong in a simulated federation, and what is done about it."""

    dropout: Share = 0.0  # the chance of a client to vanish in the middle of a round
    stragglers: Share = 0.0  # the chance of a client to do only some of its steps
    max_norm: NonNegative = 0.0  # longer moves of the model are refused; 0: any length will do
    patience: Count = 3  # rounds in a row without a valid upload before the run ends


@dataclass(frozen=True)
class RoutingConfig:
    """When a client's model delegates and when it abstains."""

    score: str = "log_density"  # of a posterior network; or entropy, mutual_information, …
    # of any other, or instead; foreign: by the global model's belief in classes not the client's
    router: Literal["", "msp", "energy", "entropy", "gaussian", "foreign"] = ""
    outliers: SomeShare = 0.1  # the share of rows like its own that a client delegates
    abstain: SomeShare = 0.05  # the share of those that nobody answers
    covariance: Literal["full", "diagonal"] = "full"  # of the router `gaussian`
    shrinkage: Share = 0.1  # of its covariances towards that of all classes


@dataclass(frozen=True)
class Config:
    """A whole run."""

    dataset: str = "digits"  # a named set, or a path to your own
    algorithm: str = "fedpn"  # see `fedpn algorithms`, or file.py:Class of your own
    clients: Count = 20  # whom rows are dealt to; where the data name theirs, those are kept
    rounds: Natural = 100
    seed: Annotated[int, Bounds(low=0, high=2**63 - 1)] = 0  # of everything that is drawn
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    faults: FaultConfig = field(default_factory=FaultConfig)
    aggregation: AggregationConfig = field(default_factory=AggregationConfig)
    method: FedAvg = field(default_factory=FedAvg)  # the algorithm with its hyperparameters


def resolve(layers: Iterable[Tree]) -> Config:
    """Merges layers of settings, later ones winning, over the dataset's preset."""
    layers = list(layers)
    chosen: Tree = {}
    for layer in layers:
        chosen |= {k: str(v) for k, v in layer.items() if k in ("dataset", "algorithm")}
    algorithm = find_algorithm(chosen.get("algorithm", Config.algorithm))
    merged: Tree = {}
    for layer in [preset(chosen.get("dataset", Config.dataset)), *layers]:
        merged = _merge(merged, _fold(layer, algorithm))
    section = section_of(algorithm)
    method = build(algorithm, merged.pop("method"), section)
    known = [f.name for f in fields(Config)]
    for key in merged:
        if key not in known:
            raise UserError(_unknown(key, sorted({*known, *ALGORITHMS, section})))
    return check(build(Config, merged | {"method": method}, ""))


def _fold(layer: Tree, algorithm: type[FedAvg]) -> Tree:
    """Brings a layer's settings of the algorithm together.

    `[method]` speaks to whichever algorithm runs, `[fedprox]` to FedProx alone; the sections of
    algorithms that do not run are checked and left.
    """
    tree, section = dict(layer), section_of(algorithm)
    tree["method"] = _merge(_section(tree, "method"), _section(tree, section))
    for name, other in ALGORITHMS.items():
        if name in tree:
            build(other, _section(tree, name), name)
    return tree


def _section(tree: Tree, name: str) -> Tree:
    """Takes a section out of the tree."""
    section = tree.pop(name, {})
    if not isinstance(section, Mapping):
        raise UserError(f"{name} is a section of settings, not {section!r}")
    return dict(section)


def check(config: Config) -> Config:
    """Refuses values that are well-formed but name nothing."""
    _one_of("model.encoder", config.model.encoder, ["auto", *ENCODERS])
    _one_of("model.density", config.model.density, list(DENSITIES))
    _one_of("routing.score", config.routing.score, list(POSTERIOR_SCORES))
    if not config.train.steps and not config.train.epochs:
        raise UserError("train.steps and train.epochs are both 0; a round needs some local work")
    if config.aggregation.rule == "private" and config.method.optimizer_state == "average":
        raise UserError(
            "aggregation.rule=private adds noise to what clients moved by, and an averaged "
            "optimiser state is none; use --set method.optimizer_state=reset (or keep)"
        )
    if config.aggregation.rule == "private" and config.algorithm == "scaffold":
        raise UserError("aggregation.rule=private would spoil scaffold's control variates")
    return config


def preset(dataset: str) -> Tree:
    """The settings that a named set is known to need."""
    file = resources.files("fedpn.runs") / "presets" / f"{dataset}.toml"
    if "/" in dataset or "\\" in dataset or not file.is_file():
        return {}
    return tomllib.loads(file.read_text())


def read_toml(path: Path) -> Tree:
    """Reads a config file."""
    if path.is_dir() or path.suffix in (".csv", ".tsv", ".parquet", ".npz"):
        raise UserError(f"{path} is no config file; data are named with --dataset {path}")
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"no config file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"cannot read the config {path}: {error}") from None


def parse_setting(text: str) -> Tree:
    """Reads one `section.key=value`.

    >>> parse_setting("fedpn.gamma=0.1")
    {'fedpn': {'gamma': 0.1}}
    >>> parse_setting("model.encoder=mlp")
    {'model': {'encoder': 'mlp'}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {text!r} is not of the form key=value, such as fedpn.gamma=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return dict(parsed)


def find_algorithm(name: str) -> type[FedAvg]:
    """Finds an algorithm in the name table, or the user's own: module:Class or file.py:Class."""
    if ":" not in name:
        _one_of("algorithm", name, list(ALGORITHMS))
        return ALGORITHMS[name]
    module, _, attribute = name.rpartition(":")
    place = Path.cwd()  # where people keep what they write
    if module.endswith(".py"):
        place, module = Path(module).resolve().parent, Path(module).stem
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise UserError(f"cannot import the algorithm {name!r}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, FedAvg) and is_dataclass(found)):
        raise UserError(f"{name!r} is not a frozen dataclass below fedpn.FedAvg")
    return found


def section_of(algorithm: type[FedAvg]) -> str:
    """The section of an algorithm's hyperparameters.

    >>> section_of(FedAvg)
    'fedavg'
    """
    names = {cls: name for name, cls in ALGORITHMS.items()}
    return names.get(algorithm, algorithm.__name__.lower())


def to_tree(config: Any) -> Tree:
    """Turns a config back into what TOML holds, the algorithm under its own name."""
    tree: Tree = {}
    for f in fields(config):
        value = getattr(config, f.name)
        name = section_of(type(value)) if f.name == "method" else f.name
        tree[name] = list(value) if isinstance(value, tuple) else value
        if is_dataclass(value):
            tree[name] = to_tree(value)
    return tree


def build(cls: type[T], tree: Any, where: str) -> T:
    """Builds a dataclass from plain values, checking names, types and bounds."""
    if not isinstance(tree, Mapping):
        raise UserError(f"{where} is a section of settings, not {tree!r}")
    hints = get_type_hints(cls, include_extras=True)
    known = {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    values = {}
    for key, value in tree.items():
        path = f"{where}.{key}" if where else key
        if key not in known:
            raise UserError(_unknown(path, [f"{where}.{k}" if where else k for k in known]))
        values[key] = _convert(known[key], value, path)
    return cls(**values)


def _convert(hint: Any, value: Any, path: str) -> Any:
    if get_origin(hint) is Annotated:
        kind, bounds = get_args(hint)
        if value == "auto" and bounds.auto:
            return 0
        value = _convert(kind, value, path)
        if isinstance(bounds, Bounds) and not bounds.admit(value):
            raise UserError(f"{path} is {value}, but must be {bounds}")
        return value
    if get_origin(hint) is Literal:
        _one_of(path, value, list(get_args(hint)))
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f'{path} is {value!r}, but must be a list, such as ["a", "b"]')
        return tuple(_convert(get_args(hint)[0], item, path) for item in value)
    if get_origin(hint) in (Union, types.UnionType):
        return _convert(get_args(hint)[0], value, path)
    if is_dataclass(hint):
        return value if is_dataclass(value) else build(hint, value, path)  # type: ignore[arg-type]
    return _plain(hint, value, path)


def _plain(kind: type, value: Any, path: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if kind is str and type(value) in (int, float):
        value = str(value)
    if type(value) is not kind or value != value or value in (float("inf"), float("-inf")):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise UserError(f"{path} is {value!r}, but must be {words[kind]}")
    return value


def _one_of(path: str, value: Any, names: list[Any]) -> None:
    if value not in names:
        raise UserError(f"{path} is {value!r}{_nearest(str(value), [str(n) for n in names])}")


def _unknown(key: str, names: list[str]) -> str:
    return f"unknown setting {key!r}{_nearest(key, names)}"


def _nearest(word: str, names: list[str]) -> str:
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; choose one of {', '.join(sorted(filter(None, names)))}"


def _merge(low: Tree, high: Tree) -> Tree:
    """Lays one tree of settings over another."""
    merged = dict(low)
    for key, value in high.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], dict(value)) if both else value
    return merged


def nest(flat: Tree) -> Tree:
    """The tree of settings with flat keys.

    >>> nest({"a": 1, "b.c": 2})
    {'a': 1, 'b': {'c': 2}}
    """
    tree: Tree = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        node = tree
        for name in path:
            node = node.setdefault(name, {})
        node[last] = value
    return tree


def leaves(tree: Tree, where: str = "") -> Iterator[tuple[str, Any]]:
    """Walks a tree of settings.

    >>> dict(leaves({"a": 1, "b": {"c": 2}}))
    {'a': 1, 'b.c': 2}
    """
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{where}{key}.")
        else:
            yield f"{where}{key}", value
