"""The settings of a run, from presets, TOML and the command line; unknown keys are errors."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import resources
from typing import Annotated, Any

from fedpn.algorithms import ALGORITHMS, find_algorithm, name_of, section_of
from fedpn.algorithms.base import FedAvg
from fedpn.algorithms.fedpn import FedPN
from fedpn.core.bounds import Count, Natural, Seed
from fedpn.core.errors import UserError
from fedpn.core.settings import Tree, build, leaves, merge, names_of, one_of, told, unknown
from fedpn.data.partition import PARTITIONS
from fedpn.data.sources.datasets import BUILT_IN
from fedpn.data.sources.publishers import PUBLISHERS
from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.heads import HEADS, TRAINED
from fedpn.federated.settings import EngineSettings, FaultSettings, HeadSettings, TrainSettings
from fedpn.nn.density import DENSITIES
from fedpn.nn.encoders import ENCODERS
from fedpn.routing.routers import ROUTERS, needs_posterior
from fedpn.routing.rules import find_rule
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import check_promise
from fedpn.runs.settings import DataSettings, ModelSettings

# Settings of older versions, and where they went.
MOVED = {
    "train.cohort": "engine.cohort",
    "train.device": "engine.device",
    "routing.score": "routing.router",
}
LONG = 300_000  # local steps, from which on a run says how many it takes
RENAMED = {"entropy": "dirichlet_entropy (of a softmax: softmax_entropy)"}


DEALING = {"partition", "cards", "beta"}  # settings of data, by which rows are dealt to clients


@dataclass(frozen=True)
class Config:
    """A whole run. The algorithm and its hyperparameters are one value, `method`."""

    dataset: Annotated[str, "a named set, or a path to your own"] = "offices"
    clients: Annotated[
        Count, "whom rows are dealt to; where the data name theirs, those are kept"
    ] = 20
    rounds: Annotated[
        Natural, "how often clients train and the server averages; `analytic` has none"
    ] = 100
    seed: Annotated[Seed, "of everything that is drawn"] = 0
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    head: HeadSettings = field(default_factory=HeadSettings)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    aggregation: AggregationSettings = field(default_factory=AggregationSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    method: FedAvg = field(default_factory=FedPN)

    @property
    def algorithm(self) -> str:
        """The name of the method."""
        return name_of(type(self.method))

    @property
    def router(self) -> str:
        """By which score clients delegate; "" where they do not."""
        if self.routing.router != "auto":
            return self.routing.router.removeprefix("none")
        return "log_density" if self.method.network == "posterior" else ""

    @property
    def rule(self) -> str:
        """The rule by which answers are given; "" where a single model always answers."""
        kind = self.routing.rule
        if kind != "auto" and (self.router or not find_rule(kind).needs_router):
            return kind
        return "bayes" if self.router or self.head.kind != TRAINED else ""

    @property
    def may_pool(self) -> bool:
        """Whether clients may add up what they see of their rows: not where a rule of aggregation
        or noise guards what they send, and would not guard this."""
        return self.aggregation.rule == "mean" and not self.head.noise

    @property
    def shows_inputs(self) -> bool:
        """Whether reports hold some inputs as pictures."""
        if self.data.show == "auto":
            return self.dataset in BUILT_IN or self.dataset in PUBLISHERS
        return self.data.show == "yes"

    def hides_columns(self, shape: Sequence[int]) -> bool:
        """Whether inputs are normalised without a look at them: where noise guards what is sent,
        and inputs are pictures, whose bounds are known."""
        guarded = bool(self.head.noise) or self.aggregation.rule == "private"
        return guarded and len(shape) == 3

    def remarks(self, clients: int) -> Iterator[str]:
        """Yield what should be known before a run begins: what is left, what takes long."""
        if self.routing.rule not in ("auto", self.rule):
            yield (
                f"routing.rule={self.routing.rule} is left: {self.algorithm} has no score to "
                "delegate by (routing.router would name one, such as gaussian)"
            )
        steps = clients * self.rounds * self.train.steps
        if steps > LONG:
            yield (
                f"{clients} clients × {self.rounds} rounds × {self.train.steps} steps are "
                f"{steps:,} local steps, which take long: --rounds and train.steps lower them, "
                "--algorithm analytic needs none"
            )

    @property
    def headline(self) -> str:
        """Whose figures stand for the run."""
        return find_rule(self.rule).row if self.rule else self.method.headline


def resolve(layers: Iterable[Tree]) -> Config:
    """Merges layers of settings, later ones winning, over the dataset's preset."""
    layers = list(layers)
    named = [str(layer["algorithm"]) for layer in layers if "algorithm" in layer]
    algorithm = find_algorithm(named[-1] if named else name_of(FedPN))
    section = section_of(algorithm)
    dataset = chosen_dataset(layers)
    merged: Tree = {"dataset": dataset}
    settings = [name for name in names_of(Config) if not name.startswith("method.")]
    known = ["algorithm", *settings, *names_of(algorithm, "method.")]
    for layer in [preset(dataset, algorithm), *layers]:
        _refuse_moved(layer)
        _refuse_unknown(layer, known, section)
        merged = merge(merged, _fold(layer, algorithm))
    method = build(algorithm, merged.pop("method"), section)
    merged.pop("algorithm", None)
    return check(_settle_head(build(Config, merged | {"method": method}, "")))


def chosen_dataset(layers: Iterable[Tree]) -> str:
    """Return the data that layers of settings name; the last one counts.

    Where none does: the offices, which are ten; who asks for clients or a partition deals digits.

    >>> chosen_dataset([{"rounds": 3}]), chosen_dataset([{"clients": 4}])
    ('offices', 'digits')
    """
    named = [str(layer["dataset"]) for layer in layers if "dataset" in layer]
    data = [layer["data"] for layer in layers if isinstance(layer.get("data"), dict)]
    dealt = any("clients" in layer for layer in layers) or any(
        DEALING & part.keys() for part in data
    )
    return named[-1] if named else "digits" if dealt else Config.dataset


def _settle_head(config: Config) -> Config:
    """An algorithm without rounds has a head in closed form; what it sees follows from that."""
    head, rounds = config.head, config.rounds
    if not config.method.trains:
        rounds = 0
        head = replace(head, kind="ridge") if head.kind == TRAINED else head
    if head.features == "auto" and head.kind != TRAINED:
        head = replace(head, features="inputs+encoder" if rounds else "inputs")
    return replace(config, head=head, rounds=rounds)


def _refuse_unknown(layer: Tree, known: Sequence[str], section: str) -> None:
    """Refuse settings that do not exist; an algorithm's own are checked where they are folded."""
    sections = {name.rpartition(".")[0] for name in known}
    for key, _ in leaves(dict(layer)):
        if key.partition(".")[0] not in (*ALGORITHMS, section) and key not in (*known, *sections):
            raise UserError(unknown(key, known))


def _refuse_moved(layer: Tree) -> None:
    """Names of older versions are told apart from misspelled ones."""
    for key, value in leaves(dict(layer)):
        if key in MOVED:
            raise UserError(f"{key} is called {MOVED[key]} now")
        if key == "routing.router" and isinstance(value, str) and value in RENAMED:
            raise UserError(f"the router {value!r} is called {RENAMED[value]} now")


def _fold(layer: Tree, algorithm: type[FedAvg]) -> Tree:
    """Brings a layer's settings of the algorithm together.

    `[method]` speaks to whichever algorithm runs, `[fedprox]` to FedProx alone; the sections of
    algorithms that do not run are checked and left.
    """
    tree, section = dict(layer), section_of(algorithm)
    tree["method"] = merge(_section(tree, "method"), _section(tree, section))
    for name, other in ALGORITHMS.items():
        if name in tree:
            build(other, _section(tree, name), name)
    return tree


def _section(tree: Tree, name: str) -> Tree:
    """Takes a section out of the tree."""
    section = tree.pop(name, {})
    if not isinstance(section, Mapping):
        raise UserError(f"{name} is a section of settings, not {told(section)}")
    return dict(section)


def check(config: Config) -> Config:
    """Refuses values that are well-formed but name nothing, or that do not go together."""
    if ":" not in config.model.encoder:
        one_of("model.encoder", config.model.encoder, ["auto", *ENCODERS])
    if ":" not in config.data.partition:
        one_of("data.partition", config.data.partition, ["auto", *PARTITIONS])
    if ":" not in config.model.density:
        one_of("model.density", config.model.density, list(DENSITIES))
    if ":" not in config.head.kind:
        one_of("head.kind", config.head.kind, [TRAINED, *HEADS])
    if ":" not in config.routing.router:
        one_of("routing.router", config.routing.router, ["auto", "none", *ROUTERS])
    if config.routing.rule != "auto":
        find_rule(config.routing.rule)
    if needs_posterior(config.router) and config.method.network != "posterior":
        raise UserError(
            f"routing.router={config.router} is of posterior networks, and {config.algorithm} "
            "trains another; use msp, energy, softmax_entropy, gaussian or foreign"
        )
    if not config.train.steps and not config.train.epochs:
        raise UserError("train.steps and train.epochs are both 0; a round needs some local work")
    check_promise(config.routing)
    if config.routing.risk and config.rule and not config.may_pool:
        raise UserError(
            "routing.risk needs counts of all clients' rows, which neither aggregation.rule="
            f"{config.aggregation.rule} nor head.noise would cover; use mean, without noise"
        )
    private = config.aggregation.rule == "private"
    if private and config.method.optimizer_state == "average":
        raise UserError(
            "aggregation.rule=private adds noise to what clients moved by, and an averaged "
            "optimiser state is none; use --set method.optimizer_state=reset (or keep)"
        )
    if private and config.algorithm == "scaffold":
        raise UserError("aggregation.rule=private would spoil scaffold's control variates")
    return config


def preset(dataset: str, algorithm: type[FedAvg]) -> Tree:
    """The settings that a named set is known to need; `[posterior]` has those of such networks."""
    presets = (resources.files("fedpn.runs") / "presets").iterdir()
    file = next((file for file in presets if file.name == f"{dataset}.toml"), None)
    if file is None:  # or a path, which is no name at all
        return {}
    tree = tomllib.loads(file.read_text(encoding="utf-8"))
    own = tree.pop("posterior", {})
    return merge(tree, own) if algorithm.network == "posterior" else tree


def to_tree(config: Any) -> Tree:
    """Turns a config back into what TOML holds, the algorithm under its own name."""
    tree: Tree = {}
    for f in fields(config):
        value = getattr(config, f.name)
        name = section_of(type(value)) if f.name == "method" else f.name
        tree[name] = list(value) if isinstance(value, tuple) else value
        if is_dataclass(value):
            tree[name] = to_tree(value)
        if f.name == "dataset":
            tree["algorithm"] = config.algorithm
    return tree
