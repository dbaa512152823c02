"""Secure aggregation (SecAgg+; Bell et al., 2020): the server learns the sum of moves, not one.

Flower has the protocol only for its older interface. What it needs of that is bridged here, and
nowhere else: nodes mask how far their upload moved, as whole numbers, and the masks cancel in the
sum. Four messages a round; nodes that vanish after the second are made up for by the others.
"""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters
from flwr.common import parameters_to_ndarrays as to_arrays
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)
from flwr.compat.common.recorddict_compat import fitres_to_recorddict
from flwr.server import ClientManager, LegacyContext
from flwr.server.strategy import Strategy
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as FlowKey
from flwr.serverapp import Grid

from fedpn.core.errors import UserError
from fedpn.core.trees import Params
from fedpn.flower.app.records import read_report

REACH = 8.0  # a single number moves no further than this in a round
SHARES, THRESHOLD = 1.0, 2 / 3  # who holds shares of a key, and how many of them restore it
MODULUS = 2**32

Call = Callable[[Message, Context], Message]


def masked(message: Message, context: Context, call: Call) -> Message:
    """A node's side: plays its part of the protocol, and masks what the app answers."""
    asked = message.content.config_records[RECORD_KEY_CONFIGS]
    if context.node_config.get("secure") and asked[Key.STAGE] == Stage.SETUP:
        _refuse_thin(int(str(asked[Key.THRESHOLD])), int(str(asked[Key.SHARE_NUMBER])))

    def learned(message: Message, context: Context) -> Message:
        answer = call(message, context)
        if "report" in answer.content.config_records:  # a failure, which no mask is for
            raise UserError(read_report(answer.content).error)
        return answer

    return secaggplus_mod(message, context, learned)


def _refuse_thin(threshold: int, shares: int) -> None:
    """A mask that fewer than two nodes, or each of two halves of them, can take off is none.

    >>> _refuse_thin(2, 3)
    """
    if threshold < 2 or 2 * threshold <= shares:
        raise UserError(f"masks that {threshold} of {shares} nodes can take off protect nobody")


def maskable(moved: Params, rows: int, loss: float) -> RecordDict:
    """A node's answer in the form that the protocol masks: all but the loss.

    By name, for the order in which a node computes them is its own; and none without an axis, which
    Flower's masks would pass over.
    """
    arrays = [np.atleast_1d(t.double().cpu().numpy()) for _, t in sorted(moved.items())]
    if not all(np.abs(array).max(initial=0) <= REACH for array in arrays):
        raise UserError(f"what this node learned is not finite, or moved further than {REACH:g}")
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), rows, {"loss": loss})
    return fitres_to_recorddict(result, True)


class Masked(NamedTuple):
    """What the server learns of a round."""

    mean: Params  # of the moves, weighted by rows
    losses: dict[int, float]  # of the nodes that count


class Sum:
    """The server's side of one round."""

    def __init__(self, grid: Grid, timeout: float, heaviest: int) -> None:
        self.grid, self.timeout, self.heaviest = grid, timeout, heaviest

    def __call__(
        self, contents: Mapping[int, RecordDict], form: Params, round_: int
    ) -> Masked | None:
        """Returns the weighted mean of the moves of those nodes that count, or nothing."""
        if len(contents) < 2:
            return None
        strategy = _Strategy(list(contents))
        context = LegacyContext(
            Context(0, 0, {}, RecordDict(), {}),
            strategy=cast(Strategy, strategy),
            client_manager=cast(ClientManager, _Manager(len(contents))),
        )
        context.state[MAIN_CONFIGS_RECORD] = ConfigRecord({FlowKey.CURRENT_ROUND: round_})
        context.state[MAIN_PARAMS_RECORD] = ArrayRecord({})
        bits = 31 - math.ceil(math.log2(len(contents)))  # sums of so many stay below the modulus
        workflow = _Workflow(
            SHARES,
            THRESHOLD,
            max_weight=float(self.heaviest),
            clipping_range=REACH,
            quantization_range=2 ** min(bits, 28),
            modulus_range=MODULUS,
            timeout=self.timeout,
        )
        workflow.contents = dict(contents)
        workflow(self.grid, context)
        if strategy.mean is None:
            return None
        mean = {
            name: torch.from_numpy(np.asarray(array)).reshape(t.shape)
            for (name, t), array in zip(sorted(form.items()), strategy.mean, strict=True)
        }
        return Masked(mean, strategy.losses)


class _Workflow(SecAggPlusWorkflow):
    """Flower's protocol, which sends our messages where it would send its own."""

    contents: dict[int, RecordDict]

    def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        going = super().setup_stage(grid, context, state)
        state.nid_to_fitins = self.contents
        return going


class _Strategy:
    """Names the nodes, and keeps what comes out."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        self.mean: list[Any] | None = None
        self.losses: dict[int, float] = {}

    def configure_fit(self, *_: Any) -> list[tuple[Any, FitIns]]:
        nothing = FitIns(Parameters([], ""), {})
        return [(SimpleNamespace(node_id=node), nothing) for node in self.nodes]

    def aggregate_fit(
        self, round_: int, results: list[tuple[Any, FitRes]], failures: Any
    ) -> tuple[None, dict[str, Any]]:
        self.mean = to_arrays(results[0][1].parameters)
        self.losses = {proxy.node_id: float(told.metrics["loss"]) for proxy, told in results}
        return None, {}


class _Manager:
    def __init__(self, count: int) -> None:
        self.count = count

    def num_available(self) -> int:
        return self.count
