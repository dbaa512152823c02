"""Everything that is settled before the first step: data, dealing, model."""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import NamedTuple

import torch

from fedpn.core.task import Data
from fedpn.runs.config import Config
from fedpn.data.dataset import Dataset
from fedpn.data.describe import client_name
from fedpn.data.federation import Federation, federate
from fedpn.data.moments import Moments, constants, moments
from fedpn.data.sources.own import open_dataset
from fedpn.data.partition import partition, usual
from fedpn.data.recode import recode
from fedpn.core.errors import UserError
from fedpn.nn.blueprint import Blueprint, build_model, choose_encoder
from fedpn.nn.posterior import parameters
from fedpn.nn.task import Model
from fedpn.routing.thresholds import rows_needed
from fedpn.core.trees import Params


class Prepared(NamedTuple):
    """Everything that is settled before the first step."""

    dataset: Dataset
    federation: Federation
    blueprint: Blueprint
    model: Model
    data: Data
    fresh: Params


def deal(config: Config) -> tuple[Dataset, Federation]:
    """Loads the data and deals them to clients."""
    return deal_rows(config, read(config, config.dataset))


def read(config: Config, spec: str) -> Dataset:
    """Loads data as the settings say."""
    d = config.data
    columns = d.label or None, d.client or None, d.features
    dataset = open_dataset(spec, d.image_size or None, *columns)
    if d.features and not dataset.features:
        raise UserError(f"data.features names columns, but {spec} is no table")
    return recode(dataset, d.classes) if d.classes else dataset


def deal_rows(config: Config, dataset: Dataset) -> tuple[Dataset, Federation]:
    """Deals data that are at hand, changed perhaps, to clients."""
    d = config.data
    scheme = usual(dataset) if d.partition == "auto" else d.partition
    if scheme != "natural":
        dataset = replace(dataset, clients=())  # those who are dealt to are others
    elif config.clients not in (len(dataset.clients), Config.clients):
        remark = f"the data name {len(dataset.clients)} clients, which are kept as they are"
        dataset = replace(dataset, remarks=(*dataset.remarks, remark))
    owned = partition(dataset, scheme, config.clients, config.seed, d.cards, d.beta)
    return dataset, federate(dataset.y, owned, config.seed)


def prepare(config: Config) -> Prepared:
    """Deals the data and builds the model; finds mistakes before anything is written."""
    return assemble(config, *deal(config))


def assemble(config: Config, dataset: Dataset, federation: Federation) -> Prepared:
    """Builds the model for data that are dealt."""
    check_calibration(config, dataset, federation, range(federation.clients))
    classes = len(dataset.classes)
    total = reduce(add, (moments(dataset.x[rows]) for rows in federation.train))
    return equip(config, dataset, federation, plan_model(config, dataset.shape, classes, total))


def plan_model(config: Config, shape: tuple[int, ...], classes: int, total: Moments) -> Blueprint:
    """Settles the network by its inputs, its outputs and sums over all training rows."""
    mean, std = constants(total)
    return Blueprint(
        config.method.network,
        shape,
        classes,
        choose_encoder(config.model.encoder, shape),
        config.model.dim,
        config.model.density,
        config.model.layers,
        mean,
        std,
        config.model.norm,
    )


def equip(
    config: Config, dataset: Dataset, federation: Federation, blueprint: Blueprint
) -> Prepared:
    """Brings data and model together."""
    model, fresh = draw_model(config, blueprint)
    device = find_device(config.train.device)
    data = Data(torch.from_numpy(dataset.x).to(device), torch.from_numpy(dataset.y).to(device))
    return Prepared(dataset, federation, blueprint, model, data, fresh)


def draw_model(config: Config, blueprint: Blueprint) -> tuple[Model, Params]:
    """Draws a model's first parameters; refuses methods that lack what the settings ask for."""
    options = config.method.loss_options()
    model = build_model(blueprint, config.seed, options, config.model.pretrained)
    model = model.to(find_device(config.train.device))
    fresh = parameters(model.network)
    server = config.method.init(model.task, fresh)
    if config.aggregation.rule != "mean" and not server["model"]:
        raise UserError(f"{config.algorithm} uploads nothing that aggregation.rule could protect")
    shared = config.method.shared(server)
    if is_routed(config) and shared is None:
        raise UserError(f"{config.algorithm} has no global model that a router could delegate to")
    return model, fresh


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
        raise UserError(f"train.device is {name!r}; choose one of auto, {', '.join(there)}")
    if not there[kind]:
        raise UserError(f"train.device is {name!r}, but this machine has none; use cpu")
    return torch.device(name)


def is_routed(config: Config) -> bool:
    """Tells whether clients have a switch: a posterior network's own, or a router's."""
    return config.method.network == "posterior" or bool(config.routing.router)


def check_calibration(
    config: Config, dataset: Dataset, federation: Federation, clients: Iterable[int]
) -> None:
    """Refuses clients with too few calibration rows for the thresholds that a switch needs."""
    if not is_routed(config):
        return
    shares = {"outliers": config.routing.outliers, "abstain": config.routing.abstain}
    setting = min(shares, key=lambda name: shares[name])
    share = 100 * shares[setting]
    needed = rows_needed(share / 100)
    for client in clients:
        count = len(federation.calibration[client])
        if count < needed:
            name = client_name(dataset, client)
            raise UserError(
                f"client {name} has {count} calibration rows, a fifth of its rows; a {share:g} % "
                f"threshold needs at least {needed} (use fewer clients, give this one more rows, "
                f"or raise routing.{setting})"
            )
