"""Secure aggregation (SecAgg+; Bell et al., 2020): the server learns a sum, and no part of it.

Flower has the protocol only for its older interface. What it needs of that is bridged here, and
nowhere else: nodes mask how far their upload moved, or the digits of other statistics, as whole
numbers, and the masks cancel in the sum. Four messages a turn; nodes that vanish after the second
are made up for by the others.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    NDArray,
    Parameters,
    Scalar,
    Status,
    ndarrays_to_parameters,
)
from flwr.common import parameters_to_ndarrays as to_arrays
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    RECORD_KEY_STATE,
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
from fedpn.flower.app.border import Border
from fedpn.flower.app.masks import MODULUS, REACH, check_setup, check_unmask
from fedpn.flower.app.own import refuse_other_nodes
from fedpn.flower.app.records import read_report
from fedpn.flower.app.whole import (
    PLACES,
    from_digits,
    from_mean,
    from_wide,
    to_digits,
    to_range,
    to_wide,
)

QUESTION = "question"  # the record of it
COUNTS = 2.0**14  # of integers: moves up to 131,072 a round, to an eighth of one or better
SHARES, THRESHOLD = 1.0, 2 / 3  # who holds shares of a key, and how many of them restore it

Call = Callable[[Message, Context], Message]


def masked(message: Message, context: Context, call: Call) -> Message:
    """A node's side: plays its part of the protocol, and masks what the app answers."""
    asked = message.content.config_records[RECORD_KEY_CONFIGS]
    if asked.get(Key.STAGE) == Stage.SETUP:
        check_setup(asked)
    if asked.get(Key.STAGE) == Stage.UNMASK:
        kept = context.state.config_records.get(RECORD_KEY_STATE, ConfigRecord())
        check_unmask(asked, kept, message.metadata.dst_node_id)
        question = context.state.config_records[QUESTION]
        nodes = cast(list[int], asked[Key.ACTIVE_NODE_ID_LIST])
        refuse_other_nodes(Path(str(question["place"])), str(question["mark"]), nodes)

    def learned(message: Message, context: Context) -> Message:
        answer = call(message, context)
        if "report" in answer.content.config_records:  # a failure, which no mask is for
            raise UserError(read_report(answer.content).error)
        context.state[QUESTION] = cast(ConfigRecord, answer.content.pop(QUESTION))
        return answer

    return secaggplus_mod(message, context, learned)


def noted(told: RecordDict, place: Path, mark: str) -> RecordDict:
    """Beside an answer, for the node alone: of which question it is."""
    told[QUESTION] = ConfigRecord({"place": str(place), "mark": mark})
    return told


def maskable(moved: Params, counts: Collection[str], rows: int, loss: float) -> RecordDict:
    """A node's answer in the form that the protocol masks: all but the loss.

    Counts move further than weights, and need no fractions: they travel in units of `COUNTS`.

    By name, for the order in which a node computes them is its own; and none without an axis, which
    Flower's masks would pass over.
    """
    scaled = {name: t.double() / _unit(name, counts) for name, t in moved.items()}
    arrays = [np.atleast_1d(t.cpu().numpy()) for _, t in sorted(scaled.items())]
    if not all(np.abs(array).max(initial=0) <= REACH for array in arrays):
        raise UserError(f"what this node learned is not finite, or moved further than {REACH:g}")
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), rows, {"loss": loss})
    return fitres_to_recorddict(result, True)


def maskable_sums(sums: Params, weight: float, wide: bool) -> RecordDict:
    """Statistics and their weight in the form that the protocol masks, digit by digit.

    All but their names and shapes, which the server must know and which tell of no row.
    """
    named = {"": torch.tensor(weight, dtype=torch.float64)} | dict(sorted(sums.items()))
    flat = [np.atleast_1d(t.double().cpu().numpy()).ravel() for t in named.values()]
    cut = to_wide if wide else to_digits
    digits = [to_range(cut(array), REACH) for array in flat]
    form = json.dumps({name: list(t.shape) for name, t in named.items()})
    told: dict[str, Scalar] = {"loss": 0.0, "form": form}
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(digits), 1, told)
    return fitres_to_recorddict(result, True)


class Masked(NamedTuple):
    """What the server learns of a turn."""

    mean: list[NDArray]  # of what nodes masked, weighted
    told: dict[int, Mapping[str, Scalar]]  # in clear, by the nodes that count

    @property
    def losses(self) -> dict[int, float]:
        return {node: float(told["loss"]) for node, told in self.told.items()}


def read_moves(found: Masked, form: Params) -> Params:
    """The mean of the moves."""
    counts = {name for name, t in form.items() if not t.is_floating_point()}
    return {
        name: torch.from_numpy(np.asarray(array)).reshape(t.shape) * _unit(name, counts)
        for (name, t), array in zip(sorted(form.items()), found.mean, strict=True)
    }


def _unit(name: str, counts: Collection[str]) -> float:
    return COUNTS if name in counts else 1.0


def read_sums(found: Masked) -> tuple[Params, float]:
    """The sums of statistics and of their weights; refused where nodes do not agree on a form."""
    forms = {str(told["form"]) for told in found.told.values()}
    if len(forms) > 1:
        raise UserError("the nodes' statistics have several forms: their versions or data differ")
    shapes: dict[str, list[int]] = json.loads(forms.pop())
    nodes, sums = len(found.told), {}
    for (name, shape), mean in zip(shapes.items(), found.mean, strict=True):
        digits = from_mean(np.asarray(mean), nodes, REACH)
        join = from_digits if len(digits) == len(PLACES) else from_wide
        sums[name] = torch.from_numpy(join(digits, nodes)).reshape(shape)
    weight = float(sums.pop(""))
    return sums, weight


class Sum:
    """The server's side of one turn; `levels` is how finely numbers are told apart."""

    def __init__(self, grid: Border, timeout: float, heaviest: int, levels: int = 2**28) -> None:
        self.grid, self.timeout, self.heaviest, self.levels = grid, timeout, heaviest, levels

    def __call__(self, contents: Mapping[int, RecordDict], round_: int) -> Masked | None:
        """Returns the weighted mean of what those nodes masked that count, or nothing."""
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
            quantization_range=min(2**bits, self.levels),
            modulus_range=MODULUS,
            timeout=self.timeout,
        )
        workflow.contents = dict(contents)
        try:
            workflow(self.grid, context)
        except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError, OverflowError):
            return None  # shares that fit nothing: nobody knows whose
        if strategy.mean is None or not all(np.isfinite(array).all() for array in strategy.mean):
            return None
        return Masked(strategy.mean, strategy.told)


class _Workflow(SecAggPlusWorkflow):
    """Flower's protocol, which sends our messages where it would send its own."""

    contents: dict[int, RecordDict]

    def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        going = super().setup_stage(grid, context, state)
        state.nid_to_fitins = self.contents
        return going

    def share_keys_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Who has shared no key is under nobody's mask: later stages need not make up for it."""
        going = super().share_keys_stage(grid, context, state)
        state.sampled_node_ids = set(state.active_node_ids)
        near = state.nid_to_neighbours
        state.nid_to_neighbours = {
            n: near[n] & state.active_node_ids for n in state.active_node_ids
        }
        return going


class _Strategy:
    """Names the nodes, and keeps what comes out."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        self.mean: list[NDArray] | None = None
        self.told: dict[int, Mapping[str, Scalar]] = {}

    def configure_fit(self, *_: Any) -> list[tuple[Any, FitIns]]:
        nothing = FitIns(Parameters([], ""), {})
        return [(SimpleNamespace(node_id=node), nothing) for node in self.nodes]

    def aggregate_fit(
        self, round_: int, results: list[tuple[Any, FitRes]], failures: Any
    ) -> tuple[None, dict[str, Any]]:
        self.mean = to_arrays(results[0][1].parameters)
        self.told = {proxy.node_id: result.metrics for proxy, result in results}
        return None, {}


class _Manager:
    def __init__(self, count: int) -> None:
        self.count = count

    def num_available(self) -> int:
        return self.count
