"""Everything that is settled before the first round: data, dealing, network."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.core.task import Data
from fedpn.data.dataset import Array, Dataset
from fedpn.data.describe import client_name
from fedpn.data.federation import LEAST, Federation, federate
from fedpn.data.moments import Moments, any_image, constants
from fedpn.data.partition import partition, usual
from fedpn.data.prepared import prepared
from fedpn.data.recipe import Recipe
from fedpn.data.recode import recode
from fedpn.data.shift import shift_clients
from fedpn.data.sources.given import NAME
from fedpn.data.sources.guard import some
from fedpn.data.sources.own import read_dataset
from fedpn.data.subset import take_some
from fedpn.data.units import first_rows, of_rows
from fedpn.federated.checkpoint import Journal
from fedpn.federated.columns import column_phases, read_columns
from fedpn.federated.conductor import conduct
from fedpn.federated.heads import TRAINED, make_head
from fedpn.federated.heads.sums import check_memory
from fedpn.federated.listener import Listener
from fedpn.federated.moments import SumMoments, read_moments
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Network, Setup, Unseen
from fedpn.nn.blueprint import Blueprint, build_model, choose_encoder
from fedpn.nn.posterior import parameters
from fedpn.routing.thresholds import rows_needed
from fedpn.runs.config import Config

MANY = 0.01  # the share of a client's rows from which on it is told that others have them


def deal(config: Config, given: Dataset | None = None) -> tuple[Dataset, Federation]:
    """Loads the data, unless they are given, and deals them to clients."""
    dataset = read(config, config.dataset) if given is None else settle(config, given)
    return deal_rows(config, dataset)


def read(config: Config, spec: str, cells: bool = False) -> Dataset:
    """Loads data as the settings say; of a table its cells, though all may be numbers."""
    d = config.data
    if spec == NAME:
        raise UserError(
            "the data of this run were in memory: go on from Python, with fedpn.run(…, resume=True)"
        )
    wanted = d.wanted()
    ways, least = replace(wanted.ways, keep=cells), 1 if d.classes else wanted.least
    dataset = read_dataset(spec, d.image_size or None, wanted._replace(ways=ways, least=least))
    for name in ("features", "label", "client", "group"):
        if getattr(d, name) and not dataset.features:
            hint = "; --clients says how many there are" if name == "client" else ""
            raise UserError(f"data.{name} names a column, but {spec} is no table{hint}")
    return settle(config, dataset)


def settle(config: Config, dataset: Dataset) -> Dataset:
    """Data with their classes in the order of the settings, so many rows as these say, and which
    of them are copies, unless groups are named."""
    d = config.data
    dataset = recode(dataset, d.classes) if d.classes else dataset
    if 0 < d.limit < len(dataset):
        dataset = take_some(dataset, d.limit, config.seed)
    if dataset.group is None and d.copies == "one":
        dataset = replace(dataset, group=of_rows(dataset.x))
    return dataset


def deal_rows(config: Config, dataset: Dataset) -> tuple[Dataset, Federation]:
    """Deals data that are at hand, changed perhaps, to clients."""
    d = config.data
    scheme = usual(dataset) if d.partition == "auto" else d.partition
    if scheme != "natural":
        dataset = replace(dataset, clients=())  # those who are dealt to are others
    elif config.clients not in (len(dataset.clients), Config.clients):
        remark = f"the data name {len(dataset.clients)} clients, which are kept as they are"
        dataset = replace(dataset, remarks=(*dataset.remarks, remark))
    owned = _dealt(config, dataset, scheme)
    dataset, owned = _large_enough(dataset, owned)
    dataset = replace(dataset, remarks=(*dataset.remarks, *_of_units(dataset, owned)))
    if d.shift != "none":
        dataset = replace(dataset, x=shift_clients(dataset.x, owned, config.seed, d.shift))
    named = bool(dataset.groups)
    federation = federate(dataset.y, owned, config.seed, dataset.group, across=named)
    return _left(dataset, federation, d.without)


def _dealt(config: Config, dataset: Dataset, scheme: str) -> list[Array]:
    """Rows by client; units go whole, unless the data or the user's own function say whose each
    row is."""
    d, units = config.data, dataset.group
    options = (scheme, config.clients, config.seed, d.cards, d.beta)
    if units is None or scheme == "natural" or ":" in scheme:
        return partition(dataset, *options)
    first, number = first_rows(units)
    heads = replace(dataset, x=dataset.x[first], y=dataset.y[first], group=None)
    dealt = partition(dataset if len(first) == len(units) else heads, *options)
    return [np.flatnonzero(np.isin(number, part)) for part in dealt]


def _of_units(dataset: Dataset, owned: list[Array]) -> list[str]:
    """Remarks on groups, and on clients that have rows which other clients have as well."""
    if dataset.group is None:
        return []
    units = [np.unique(dataset.group[rows]) for rows in owned]
    values, counts = np.unique(np.concatenate(units), return_counts=True)
    shares = [float(np.isin(mine, values[counts > 1]).mean()) for mine in units]
    told = [
        f"{client_name(dataset, client)} ({100 * share:.0f} %)"
        for client, share in enumerate(shares)
        if share > MANY
    ]
    what = f"groups by {dataset.groups!r}" if dataset.groups else "rows"
    said = [f"{len(values)} {what} are dealt whole"] if dataset.groups else []
    return said + ([f"{what} that other clients have as well: {some(told)}"] if told else [])


def _large_enough(dataset: Dataset, owned: list[Array]) -> tuple[Dataset, list[Array]]:
    """Leaves out clients that the data name and that have too few rows to be split at all."""
    names = dataset.clients
    group = np.arange(len(dataset)) if dataset.group is None else dataset.group
    kept = [client for client, rows in enumerate(owned) if len(np.unique(group[rows])) >= LEAST]
    if len(kept) == len(owned) or not names or not kept:
        return dataset, owned
    gone = [f"{names[c]} ({len(owned[c])})" for c in range(len(owned)) if c not in kept]
    remark = f"clients with less than {LEAST} rows are left out: {some(gone)}"
    left = tuple(names[client] for client in kept)
    dataset = replace(dataset, clients=left, remarks=(*dataset.remarks, remark))
    return dataset, [owned[client] for client in kept]


def _left(
    dataset: Dataset, federation: Federation, gone: Sequence[str]
) -> tuple[Dataset, Federation]:
    """Who is left of a federation; each keeps its name and its rows."""
    names = [client_name(dataset, client) for client in range(federation.clients)]
    for name in gone:
        if name not in names:
            raise UserError(f"data.without names {name!r}, and no client is called that")
    left = [client for client, name in enumerate(names) if name not in gone]
    if not left:
        raise UserError("data.without names all clients: nobody is left")
    if not gone:
        return dataset, federation
    return replace(dataset, clients=tuple(names[c] for c in left)), federation.only(left)


def prepare(config: Config, given: Dataset | None = None) -> Setup:
    """Deals the data and builds the network; finds mistakes before anything is written."""
    dataset, federation = deal(config, given)
    seen, unseen = who_trains(config, federation.clients)
    if not unseen:
        return assemble(config, dataset, federation)
    names = [client_name(dataset, client) for client in range(federation.clients)]
    here, late = (tuple(names[client] for client in part) for part in (seen, unseen))
    setup = assemble(config, replace(dataset, clients=here), federation.only(seen))
    return replace(setup, unseen=Unseen(late, federation.beside(unseen)))


def who_trains(config: Config, clients: int) -> tuple[list[int], list[int]]:
    """Clients that train, and those that are only judged, drawn by the seed."""
    share = config.data.unseen
    count = max(round(share * clients), 1) if share else 0
    if count >= clients:
        raise UserError(
            f"data.unseen is {share:g}, which leaves none of {clients} clients to train"
        )
    order = seeds.stream("unseen", config.seed).permutation(clients).tolist()
    return sorted(order[count:]), sorted(order[:count])


def assemble(config: Config, dataset: Dataset, federation: Federation) -> Setup:
    """Builds the network for data that are dealt."""
    check_calibration(config, dataset, federation, range(federation.clients))
    rows = lay_out(config, dataset, federation)
    if dataset.is_raw:
        dataset = prepared(dataset, learn_recipe(config, rows))
        rows = lay_out(config, dataset, federation)
    shape, classes = dataset.shape, len(dataset.classes)
    if config.hides_columns(shape):
        total = any_image(shape)
    else:
        simulator = Simulator(rows, config.method, config.seed)
        sums = conduct([SumMoments()], simulator, {}, Journal(None), Listener()).server
        total = read_moments(sums)
    return rows.settle(draw_network(config, plan_model(config, shape, classes, total)))


def learn_recipe(config: Config, rows: Setup) -> Recipe:
    """What all clients do with the columns of their tables, from sums over their training rows."""
    names = rows.dataset.features
    simulator = Simulator(rows, config.method, config.seed)
    phases = column_phases(names, config.data.categories)
    server = conduct(phases, simulator, {}, Journal(None), Listener()).server
    return read_columns(server, names, config.data.categories)


def lay_out(config: Config, dataset: Dataset, federation: Federation) -> Setup:
    """Brings rows to the device."""
    device = find_device(config.engine.device)
    # Raw cells are no numbers yet: what is learned of them goes by the dataset.
    numbers = np.empty((len(dataset), 0), np.float32) if dataset.is_raw else dataset.x
    x, y = (torch.from_numpy(array).to(device) for array in (numbers, dataset.y))
    return Setup(dataset, federation, Data(x, y), head=make_head(config.head))


def plan_model(config: Config, shape: tuple[int, ...], classes: int, total: Moments) -> Blueprint:
    """Settles the network by its inputs, its outputs and sums over all training rows."""
    mean, std = constants(total)
    return Blueprint(
        kind=config.method.network,
        shape=shape,
        classes=classes,
        encoder=choose_encoder(config.model.encoder, shape),
        dim=config.model.dim,
        density=config.model.density,
        layers=config.model.layers,
        mean=tuple(mean),
        std=tuple(std),
        norm=config.model.norm,
        frozen=config.model.frozen,
    )


def draw_network(config: Config, blueprint: Blueprint) -> Network:
    """Draws a network's first parameters; refuses methods that lack what the settings ask for."""
    options = config.method.loss_options()
    model = build_model(blueprint, config.seed, options, config.model.pretrained)
    model = model.to(find_device(config.engine.device))
    fresh = parameters(model.network)
    server = config.method.init(model.task, fresh)
    if config.aggregation.rule != "mean" and not server["model"]:
        raise UserError(f"{config.algorithm} uploads nothing that aggregation.rule could protect")
    _check_noise(config, blueprint.shape)
    check_memory(config.head, blueprint.shape)
    if config.head.kind != TRAINED and config.method.shared(server) is None:
        raise UserError(f"{config.algorithm} has no global model for a head to answer with")
    if config.rule and config.method.shared(server) is None:
        raise UserError(f"{config.algorithm} has no global model that a router could delegate to")
    return Network(blueprint, model, fresh)


def _check_noise(config: Config, shape: Sequence[int]) -> None:
    """Refuses noise on a head's sums where it would not cover all that is sent."""
    if not config.head.noise:
        return
    why = ""
    if config.head.kind != "ridge":
        why = f"the head {config.head.kind!r} has no bounds on what one row can change"
    elif len(shape) != 3:
        why = "the columns of a table have no bounds that are known beforehand"
    elif config.rounds or config.head.features != "inputs":
        why = "an encoder's rounds and layers would not be covered; use --algorithm analytic"
    if why:
        raise UserError(f"head.noise protects the sums of pictures' patches alone: {why}")


def find_device(name: str) -> torch.device:
    """Takes a device by name, or the best at hand."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(kind for kind in there if there[kind]))
    kind = name.split(":")[0]
    if kind not in there:
        raise UserError(f"engine.device is {name!r}; choose one of auto, {', '.join(there)}")
    if not there[kind]:
        raise UserError(f"engine.device is {name!r}, but this machine has none; use cpu")
    return torch.device(name)


def check_calibration(
    config: Config, dataset: Dataset, federation: Federation, clients: Iterable[int]
) -> None:
    """Refuses clients with too few calibration rows, where they cannot borrow thresholds."""
    if not config.rule or config.may_pool:
        return
    shares = {"outliers": config.routing.outliers, "abstain": config.routing.abstain}
    setting = min(shares, key=lambda name: shares[name])
    share = 100 * shares[setting]
    needed = rows_needed(share / 100)
    for client in clients:
        count = len(federation.calibration[client])
        if count < needed:
            name = client_name(dataset, client)
            once = ", copies and groups counted once" if federation.copies(client) else ""
            raise UserError(
                f"client {name} has {count} calibration rows, a fifth of its rows{once}; a "
                f"{share:g} % threshold needs at least {needed} (use fewer clients, give this one "
                f"more rows, or raise routing.{setting})"
            )


def fingerprint(dataset: Dataset) -> str:
    """Tells data apart: a run that goes on must find the rows with which it began."""
    digest = hashlib.sha256()
    named = (dataset.group,) if dataset.groups and dataset.group is not None else ()
    for array in (dataset.x, dataset.y, *named):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
