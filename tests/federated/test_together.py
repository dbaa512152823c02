"""Phases that travel side by side: each has its own weight, which is believed up to its rows."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.together import Together


@dataclass(frozen=True)
class Mean(Phase):
    """The weighted mean of one number."""

    value: float
    weight: float
    slot: str
    name: ClassVar[str] = "mean"

    def client(self, site, sent, memory):
        return Reply(memory, {"sums": {"x": torch.tensor(self.value)}}, weight=self.weight)

    def reads(self, server):
        return {role: params for role, params in server.items() if role == self.slot}

    def server(self, server, total):
        return server | {self.slot: {"x": total.sum["sums"]["x"] / total.weight}}


BOTH = Together((Mean(2.0, 10.0, "a"), Mean(5.0, 4.0, "b")), "both")


def test_each_part_is_weighed_by_itself():
    found = BOTH.client(None, {}, {}).statistics
    twice = {role: {n: 2 * t for n, t in params.items()} for role, params in found.items()}
    server = BOTH.server({}, Total(twice, 2.0, 1.0))
    assert float(server["a"]["x"]) == 2.0 and float(server["b"]["x"]) == 5.0


def test_clients_are_sent_what_any_part_reads():
    server = {role: {} for role in "abc"}
    assert BOTH.reads(server).keys() == {"a", "b"}


@pytest.mark.parametrize("weight", [0.0, -1.0, 10.5, 1e18, float("nan"), float("inf")])
def test_no_part_weighs_more_than_the_rows_of_a_client(weight):
    found = BOTH.client(None, {}, {}).statistics
    assert BOTH.objection(found, rows=10) == ""
    found["1:weight"] = {"weight": torch.tensor(weight, dtype=torch.float64)}
    assert "weigh" in BOTH.objection(found, rows=10)
