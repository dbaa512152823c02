"""A cell of the paper's tables: dataset × algorithm × variant × seed -> a run directory."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpn.algorithms import find_algorithm
from fedpn.core import store
from fedpn.core.settings import leaves
from fedpn.federated.checkpoint import HISTORY, STATE, adopt
from fedpn.federated.heads import TRAINED
from fedpn.federated.listener import Listener
from fedpn.runs import pipeline
from fedpn.runs.config import Config, preset, resolve, to_tree
from fedpn.runs.directory import refuse_changes
from fedpn.runs.identity import identity_of
from fedpn.runs.studies.alone import alone

Tree = dict[str, Any]
ROUNDS = (STATE, "memories.bin", HISTORY)  # where the rounds ended
SUBSET = "-subset"  # ends the name of a set that was cut down for a quick look


@dataclass(frozen=True)
class Variant:
    """A way of running a method that is not its plain one."""

    title: str
    settings: Tree
    trained: bool = True  # whether it has rounds of its own; else it goes on from the plain cell


def _switched(router: str, outliers: float) -> Tree:
    return {"routing": {"router": router, "outliers": outliers}}


BATCH_NORM: Tree = {"model": {"norm": "batch"}}
RESNET: Tree = {"model": {"encoder": "resnet18"}, "rounds": 30}
RESET: Tree = {"method": {"optimizer_state": "reset"}}


def _ridge(features: str) -> Tree:
    return {"head": {"kind": "ridge", "features": features}}


GAUSSIAN: Tree = {"routing": {"router": "gaussian"}}
DENSITY, ENTROPY = _switched("log_density", 0.1), _switched("dirichlet_entropy", 0.2)
VARIANTS = {
    "": Variant("", {}),
    "norm": Variant("with BatchNorm", BATCH_NORM),
    "reset": Variant("with its momentum reset each round", RESET),
    "resnet18": Variant("with ResNet-18", RESNET),
    "gaussian": Variant("routed by Gaussians", GAUSSIAN, trained=False),
    "density10": Variant("switched by log density, 10 %", DENSITY, trained=False),
    "entropy20": Variant("switched by entropy, 20 %", ENTROPY, trained=False),
    "bayes": Variant("by Bayes' rule", {"routing": {"rule": "bayes"}}, trained=False),
    "untrained": Variant("on the layers of an untrained encoder", _ridge("encoder")),
    "layers": Variant("with a ridge head on its layers", _ridge("encoder"), trained=False),
    "patches": Variant("with a ridge head on patches", _ridge("inputs"), trained=False),
    "ridge": Variant("with a ridge head on both", _ridge("inputs+encoder"), trained=False),
}
# As the paper has it: whatever is shown is answered or refused by the models alone.
PAPER: Tree = {"routing": {"strangers": 0.0, "temperature": "off"}}
# What an algorithm cannot do without, and FedPN's density as the paper rewards it.
OWN: dict[str, Tree] = {"fedbn": BATCH_NORM, "fedpn": {"method": {"cap": 0.0}}}


@dataclass(frozen=True)
class Cell:
    """One run of the tables."""

    dataset: str  # a name, or the path of an archive
    algorithm: str = "fedpn"
    variant: str = ""
    seed: int = 0
    rounds: int | None = None  # instead of the preset's
    changes: Tree = field(default_factory=dict, hash=False)  # laid over the preset

    @property
    def set_name(self) -> str:
        return Path(self.dataset).stem

    @property
    def name(self) -> str:
        """
        >>> Cell("mnist", "fedavg", "norm", seed=2).name
        'mnist-fedavg-norm-s2'
        """
        parts = (self.set_name, self.algorithm, self.variant, f"s{self.seed}")
        return "-".join(filter(None, parts))

    @property
    def plain(self) -> "Cell":
        """The cell without its variant."""
        return replace(self, variant="")

    def place(self, out: Path) -> Path:
        return out / "runs" / self.name

    def config(self) -> Config:
        """The set's preset, what the algorithm needs, the variant, and what was asked for."""
        return by_switch(self._config())

    def _config(self) -> Config:
        who = {"dataset": self.dataset, "algorithm": self.algorithm, "seed": self.seed}
        layers = [
            PAPER,
            preset(self.set_name.removesuffix(SUBSET), find_algorithm(self.algorithm)),
            OWN.get(self.algorithm, {}),
            VARIANTS[self.variant].settings,
            self.changes,
            who,
        ]
        if self.rounds is not None:
            layers.append({"rounds": self.rounds})
        return resolve(layers)

    def settings(self) -> Tree:
        """What differs from the defaults, as flat keys; the router is that in use."""
        usual = _flat(without_preset(self.dataset, [PAPER, {"algorithm": self.algorithm}]))
        mine = _flat(self._config())
        given = ("dataset", "algorithm", "seed")
        return {k: v for k, v in mine.items() if k not in given and usual.get(k) != v}


def _flat(config: Config) -> Tree:
    """Settings as flat keys, the router by its name though it may have come by itself."""
    return dict(leaves(to_tree(config))) | {"routing.router": config.router or "none"}


def by_switch(config: Config) -> Config:
    """Trained heads answer by the paper's rule, unless another was asked for."""
    if config.routing.rule != "auto" or not config.router or config.head.kind != TRAINED:
        return config
    return replace(config, routing=replace(config.routing, rule="quantiles"))


def without_preset(dataset: str, layers: Sequence[Tree]) -> Config:
    """Settings laid over the defaults alone, which are the paper's own, whatever suits a set."""
    return replace(resolve([*layers, {"dataset": ""}]), dataset=dataset)


def ensure(cell: Cell, out: Path, listener: Listener | None = None) -> Path:
    """Returns the cell's finished run directory below `out`, running what is missing of it.

    A finished run is kept and a half one goes on. A run with other settings is refused, except
    that its rounds may grow: remove it, or choose another place. Of two that ask for the same
    cell at once, one waits for the other.
    """
    path, config = cell.place(out), cell.config()
    with alone(path):
        begun = (path / "config.toml").exists()
        if begun:
            refuse_changes(config, path)
            if is_finished(path, config.rounds):
                return path
        elif path.exists():
            shutil.rmtree(path)  # without settings it holds nothing that could go on
        if not begun and not VARIANTS[cell.variant].trained:
            _branch(ensure(cell.plain, out, listener), path, config)
            begun = True
        pipeline.run(config, path, begun, listener)
    return path


def is_finished(path: Path, rounds: int) -> bool:
    """Tells whether a run directory holds all figures of all its rounds."""
    whole = all((path / name).exists() for name in (store.MANIFEST, "metrics.json"))
    return whole and bool(store.read_json(path / "metrics.json")["rounds"] == rounds)


def _branch(trained: Path, path: Path, config: Config) -> None:
    """Begins a run where the rounds of another ended."""
    path.mkdir(parents=True)
    for name in ROUNDS:
        if (trained / name).exists():
            shutil.copyfile(trained / name, path / name)
    identity = identity_of(config, store.read_json(trained / store.IDENTITY)["data"])
    identity.keep(path)
    adopt(path, identity.facts)
    store.write_toml(path / "config.toml", to_tree(config))
