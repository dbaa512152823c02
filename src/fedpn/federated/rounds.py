"""The federated stage: plays the rounds, keeps history and checkpoints."""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics, store
from fedpn.core.errors import UserError
from fedpn.core.trees import Params, flatten, unflatten
from fedpn.data.dataset import Dataset
from fedpn.federated import simulator as simulate
from fedpn.runs.config import Config
from fedpn.runs.prepare import Prepared
from fedpn.runs.trackers import Tracker

PROBE = 1000  # calibration rows that follow the global model's accuracy through the rounds
CHECKPOINT = 30.0  # seconds between checkpoints


class Tell(Protocol):
    """Hears how far a run has come."""

    def __call__(self, stage: str, done: int, of: int, **facts: float | None) -> None: ...


def quiet(stage: str, done: int, of: int, **facts: float | None) -> None:
    """Hears nothing."""


@dataclass(frozen=True)
class Company:
    """Who a run tells of itself, and who may ask it to stop."""

    tell: Tell = quiet
    trackers: tuple[Tracker, ...] = ()
    stop: Callable[[], bool] = lambda: False  # asked after each round
    say: Callable[[str], None] = lambda text: None  # hears what is worth knowing of the data
    checkpoint_every: int | None = None  # rounds; or about twice a minute


class Stopped(Exception):  # noqa: N818
    """A run that was asked to stop, after it saved its state."""


def play_rounds(config: Config, ready: Prepared, out: Path, company: Company) -> simulate.State:
    """Plays the rounds, from the last checkpoint where there is one."""
    algorithm, task, rows = config.method, ready.model.task, ready.federation.train
    labels = [torch.from_numpy(ready.dataset.y[mine]) for mine in rows]
    first = simulate.begin(algorithm, task, ready.fresh, labels, out / "memories.bin")
    data = fingerprint(ready.dataset)
    state = begun = load_state(out, first, data)
    engine = simulate.Engine(
        algorithm,
        task,
        ready.data,
        rows,
        config.seed,
        config.train,
        config.faults,
        config.aggregation,
    )
    cut_history(out, begun.round)
    saved, probe = time.perf_counter(), _probe(ready)
    with ExitStack() as stack:
        file = stack.enter_context((out / "history.jsonl").open("a", encoding="utf-8"))
        tracks = [stack.enter_context(tracker(out)) for tracker in company.trackers]
        for state, record in engine.rounds(begun, config.rounds):
            shared = algorithm.shared(state.server)
            accuracy = None if shared is None else _accuracy(ready, shared, probe)
            line = record._asdict() | {"accuracy": accuracy}
            file.write(json.dumps(line) + "\n")
            file.flush()
            lost = len(record.dropped) + len(record.refused)
            facts = {"loss": record.loss, "accuracy": accuracy, "left out": lost or None}
            company.tell("federate", state.round, config.rounds, **facts)
            numbers = {k: float(v) for k, v in line.items() if isinstance(v, int | float)}
            for track in tracks:
                track(state.round, numbers)
            stop, every = company.stop(), company.checkpoint_every
            late = time.perf_counter() - saved > CHECKPOINT
            if stop or (state.round % every == 0 if every else late):
                save_state(out, state, data)
                saved = time.perf_counter()
            if stop and state.round < config.rounds:
                raise Stopped(f"after round {state.round} of {config.rounds}")
    save_state(out, state, data)
    return state


def fingerprint(dataset: Dataset) -> str:
    """Tells data apart: a run that goes on must find the rows with which it began."""
    digest = hashlib.sha256()
    for array in (dataset.x, dataset.y):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save_state(out: Path, state: simulate.State, data: str = "") -> None:
    """Writes a federation between two rounds."""
    tensors = flatten(state.server) | {"memories": state.memories.save()}
    path = out / "state.safetensors"
    store.write_tensors(path, tensors, round=str(state.round), data=data)


def load_state(out: Path, first: simulate.State, data: str = "") -> simulate.State:
    """Reads the last checkpoint, or begins."""
    path = out / "state.safetensors"
    if not path.exists():
        return first
    tensors, about = store.read_tensors(path)
    if about["data"] != data:
        raise UserError("--resume: the data are not those with which the run began")
    first.memories.restore(tensors.pop("memories"))
    # Files sort their names; sums over entries depend on their order in the last bits.
    ordered = {name: tensors[name] for name in flatten(first.server)}
    server = unflatten(ordered, tuple(first.server))
    return simulate.State(int(about["round"]), server, first.memories)


def cut_history(out: Path, rounds: int) -> None:
    """Cuts the history to the rounds of the checkpoint."""
    path = out / "history.jsonl"
    lines = path.read_text().splitlines(keepends=True)[:rounds] if path.exists() else []
    store.write_text(path, "".join(lines))


def _probe(ready: Prepared) -> Tensor:
    pooled = np.concatenate(ready.federation.calibration)
    rng = np.random.default_rng([ready.federation.seed, 8])
    return torch.from_numpy(np.sort(rng.permutation(pooled)[:PROBE])).to(ready.data.x.device)


@torch.no_grad()
def _accuracy(ready: Prepared, shared: Params, probe: Tensor) -> float:
    logits = ready.model.task.logits(shared, ready.data.x[probe])
    return metrics.accuracy(logits.argmax(-1), ready.data.y[probe])
