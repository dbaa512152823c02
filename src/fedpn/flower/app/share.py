"""A node's share of the data: files of its own or, for trials, a partition of a named set."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedpn import __version__
from fedpn.core.errors import UserError
from fedpn.data.dataset import Array, Dataset
from fedpn.data.federation import Federation, federate
from fedpn.data.prepared import has_gaps, numbers_if, prepared
from fedpn.federated.site import Setup
from fedpn.flower.app.own import own_seed
from fedpn.flower.app.records import read_agreed
from fedpn.flower.app.told import Told
from fedpn.runs.config import Config
from fedpn.runs.prepare import check_calibration, deal, draw_network, fingerprint, lay_out, read

SMALL = 5  # rows: the name of a class that has fewer may be that of a person


@dataclass(frozen=True, eq=False)
class Share:
    """What one node has.

    Of its own files a node makes a federation of one; a trial deals the whole set as the simulator
    does, so that rows foreign to the node are there to be judged by.
    """

    name: str
    dataset: Dataset
    federation: Federation
    client: int  # the node's place in that federation
    partition: int | None
    columns_named: bool = False  # whether the run names them
    classes_named: bool = False

    @property
    def rows(self) -> Array:
        """The rows that the node trains on."""
        return self.federation.train[self.client]

    def introduce(self, names: bool = True) -> dict[str, Any]:
        """What a server must know before the first round: names and forms, no rows or labels.

        A node that does not tell names tells none of its columns; of its classes those that the
        run names itself.
        """
        # What was remarked of a node's own files is for its own log.
        remarks = self.dataset.remarks if self.partition is not None else ()
        features = self.dataset.features
        if not names and features and not self.columns_named:
            raise Told("it does not tell its columns' names: name them in data.features")
        if features and not self.classes_named and self._has_small_class():
            raise Told(
                f"a class of its label has fewer than {SMALL} rows, and such names are not told: "
                "name the classes in data.classes"
            )
        return {
            "partition": self.partition,
            "rows": len(self.rows),
            "shape": list(self.dataset.shape),
            "classes": list(self.dataset.classes),
            "features": list(features),
            "raw": has_gaps(self.dataset),
            "note": " ".join(filter(None, (self.dataset.note, *remarks))) if names else "",
            "version": __version__,
        }

    def _has_small_class(self) -> bool:
        counts = np.bincount(self.dataset.y, minlength=len(self.dataset.classes))
        return bool(counts.min(initial=SMALL) < SMALL)

    def setup(self, config: Config, model: str) -> Setup:
        """The node's rows and, once it is settled, the federation's network."""
        if not model:
            return lay_out(config, self.dataset, self.federation)
        blueprint, recipe = read_agreed(model)
        dataset = prepared(self.dataset, recipe) if recipe else numbers_if(self.dataset)
        if blueprint is None:
            return lay_out(config, dataset, self.federation)
        if dataset.is_raw or tuple(blueprint.shape) != dataset.shape:
            raise UserError(
                f"rows of this node have the shape {dataset.shape}, and the federation's "
                f"{tuple(blueprint.shape)}"
            )
        rows = lay_out(config, dataset, self.federation)
        return rows.settle(draw_network(config, blueprint))

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.dataset)


def open_share(node: Mapping[str, Any], config: Config, home: Path) -> Share:
    """Opens what the node's settings name: `data`, or `partition-id` and `num-partitions`.

    Which of its own rows a node trains on is drawn by its own secret, the same for all runs, and
    no run takes a part of them.
    """
    if "data" in node:
        name = _name(node, "")
        whole = replace(config.data, limit=0)
        config = replace(config, seed=own_seed(home, "rows"), data=whole)
        dataset = replace(read(config, str(node["data"]), True), client=None, clients=(name,))
        federation = federate(dataset.y, [np.arange(len(dataset))], config.seed, dataset.group)
        check_calibration(config, dataset, federation, [0])
        columns, classes = bool(config.data.features), bool(config.data.classes)
        return Share(name, dataset, federation, 0, None, columns, classes)
    if "partition-id" not in node or "num-partitions" not in node:
        raise UserError("a node needs data=PATH, or partition-id and num-partitions")
    number, count = int(node["partition-id"]), int(node["num-partitions"])
    if not 0 <= number < count:
        raise UserError(f"partition-id is {number}, but must be from 0 to {count - 1}")
    dataset, federation = deal(replace(config, clients=count))
    check_calibration(config, dataset, federation, [number])
    return Share(_name(node, str(number)), dataset, federation, number, number)


def _name(node: Mapping[str, Any], otherwise: str) -> str:
    name = str(node.get("name", otherwise))
    if not name:
        raise UserError("a node with data of its own needs a name (fedpn flower supernode --name)")
    return name
