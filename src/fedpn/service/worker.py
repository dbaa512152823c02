"""One worker that answers all callers: inputs that come within a few milliseconds go together."""

import itertools
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.data.dataset import Array
from fedpn.routing.bayes import Bayes
from fedpn.routing.outcomes import Outcome
from fedpn.routing.rule import EVEN, Views
from fedpn.routing.standards import foreignness
from fedpn.service.counters import Counters
from fedpn.service.decisions import Decisions, Row
from fedpn.service.drift import Seen, Watches
from fedpn.service.explain import explain
from fedpn.service.library import Answerer
from fedpn.service.limits import Limits
from fedpn.service.writer import Writer
from fedpn.serving.predict import Answer, teaches

WRITING = 0.05  # seconds that the next batch waits for the last one's decisions
Told = list[dict[str, Any]]


class Busy(Exception):  # noqa: N818
    """More waits to be answered than the service takes."""


@dataclass
class Job:
    """Inputs of one caller, in the form that one version of a client's models takes."""

    models: Answerer
    rows: Array
    share: float | None  # of own inputs; None: as the stream has it
    explain: bool = False
    faults: Sequence[str] = ()  # of each row, the cell that is no number; none: all are
    kept: Sequence[bytes] = ()  # of each row, its input as decisions keep it; none: it is not kept
    done: "Future[Told]" = field(default_factory=Future)


class Worker:
    """Takes jobs, answers them in batches, has the decisions kept, then tells the callers."""

    def __init__(
        self, limits: Limits, counters: Counters, decisions: Decisions | None = None
    ) -> None:
        self.limits, self.counters = limits, counters
        self.watches = Watches(decisions)
        self.writer = Writer(decisions, self.watches.save) if decisions is not None else None
        self.jobs: queue.Queue[Job | None] = queue.Queue()
        self.waiting, self.closed, self.had_company = 0, False, False
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._work, name="fedpn-answers", daemon=True)
        self.thread.start()

    def submit(self, job: Job) -> "Future[Told]":
        """Takes a job, or says that there are too many."""
        with self._lock:
            if self.closed or self.waiting + len(job.rows) > self.limits.waiting:
                raise Busy
            self.waiting += len(job.rows)
            self.jobs.put(job)  # before anybody closes
        return job.done

    def close(self) -> None:
        """Answers what was taken, and no more."""
        with self._lock:
            self.closed = True
            self.jobs.put(None)
        self.thread.join(timeout=self.limits.seconds)
        if self.writer is not None:
            self.writer.close(self.limits.seconds)

    def _work(self) -> None:
        while True:
            job = self.jobs.get()
            if job is None:
                return
            last = self._answer_all(self._gather(job))
            if last:
                return

    def _gather(self, first: Job) -> list[Job | None]:
        """The first job and those that wait; where the last had company, one lingers for more."""
        taken: list[Job | None] = [first]
        linger = self.limits.linger if self.had_company else 0.0
        rows, until = len(first.rows), time.monotonic() + linger
        while rows < self.limits.batch:
            try:
                job = self.jobs.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                break
            taken.append(job)
            if job is None:
                break
            rows += len(job.rows)
        self.had_company = len(taken) > 1
        return taken

    def _answer_all(self, taken: list[Job | None]) -> bool:
        jobs = [job for job in taken if job is not None]
        groups: dict[tuple[str, str, float | None], list[Job]] = {}
        for job in jobs:
            # Who has given up waiting is not answered; who has not cannot give up any more.
            if job.done.set_running_or_notify_cancel():
                key = (job.models.client, job.models.version, job.share)
                groups.setdefault(key, []).append(job)
            else:
                self._forget([job])
        for group in groups.values():
            try:
                self._answer(group[0].models, group[0].share, group)
            except Exception as error:  # told to the callers; the worker goes on
                self._fail(group, error)
        return len(jobs) < len(taken)

    def _fail(self, group: list[Job], error: Exception) -> None:
        self._forget(group)
        for job in group:
            job.done.set_exception(error)

    def _forget(self, jobs: list[Job]) -> None:
        with self._lock:
            self.waiting -= sum(len(job.rows) for job in jobs)

    @torch.no_grad()
    def _answer(self, models: Answerer, share: float | None, group: list[Job]) -> None:
        """Answers jobs for one version of a client's models; tells them once that is kept."""
        predictor, began = models.predictor, time.perf_counter()
        rows = np.concatenate([job.rows for job in group])
        x = torch.from_numpy(rows)
        views, strange = predictor.views(x), predictor.strangers(x)
        used = find_share(models, views, share, teaches(x, strange))
        views = views._replace(share=used)
        decision, sound = predictor.decide(views, strange)
        answers = predictor.tell(decision, sound)
        told = [as_tree(answer) for answer in answers]
        if any(job.explain for job in group):
            for tree, why in zip(told, explain(predictor, views, decision), strict=True):
                tree["explanation"] = why
        faults = _of_all(group, "faults", "")
        for tree, fault in zip(told, faults, strict=True):
            tree["own_share"] = used if isinstance(predictor.bundle.rule, Bayes) else None
            if fault and tree["outcome"] == Outcome.STRANGER.label:
                tree["reason"] = f"{fault}: nobody can answer"
        self.counters.answered(models.client, told, time.perf_counter() - began)
        held = predictor.bundle.standards
        by = EVEN if len(held.asked) else used
        foreign = foreignness(predictor.bundle.rule, decision, by).tolist()
        seen = Seen([Outcome(number) for number in decision.outcome.tolist()], foreign)

        done = threading.Event()

        def tell(kept: "Future[list[int]]") -> None:
            try:
                for tree, number in zip(told, kept.result(), strict=True):
                    tree["id"] = number
                self.watches.see(predictor.bundle, seen, share)
            except Exception as error:
                self._fail(group, error)
            else:
                self._forget(group)
                _deliver(group, told)
            done.set()

        if self.writer is None:
            self.watches.see(predictor.bundle, seen, share)
            self._forget(group)
            _deliver(group, told)
        else:
            lines = _lines(models, told, _of_all(group, "kept", None))
            self.writer.submit(lines).add_done_callback(tell)
            done.wait(WRITING)  # meanwhile inputs come that go together


def _deliver(group: Sequence[Job], told: Told) -> None:
    """Gives each job its own of all answers."""
    rest = iter(told)
    for job in group:
        part = list(itertools.islice(rest, len(job.rows)))
        if not job.explain:
            for tree in part:
                tree.pop("explanation", None)
        job.done.set_result(part)


def _lines(models: Answerer, told: Told, inputs: Sequence[bytes | None]) -> list[Row]:
    """Answers as decisions keep them."""
    now = time.time()
    return [
        {
            "time": now,
            "client": models.client,
            "version": models.version,
            **{k: tree[k] for k in ("outcome", "source", "label", "guess", "confidence")},
            **tree["uncertainty"],
            "own_share": tree["own_share"],
            "reason": tree["reason"],
            "input": given,
        }
        for tree, given in zip(told, inputs, strict=True)
    ]


def _of_all(group: Sequence[Job], field: str, nothing: Any) -> list[Any]:
    """What jobs have for each of their rows, some of them perhaps nothing."""
    return [value for job in group for value in getattr(job, field) or [nothing] * len(job.rows)]


def find_share(models: Answerer, views: Views, given: float | None, known: Tensor) -> float:
    """The share of own inputs: as given, or as the known ones of the client's stream have it."""
    rule = models.predictor.bundle.rule
    if not isinstance(rule, Bayes):
        return EVEN
    return given if given is not None else models.stream.learn(rule.believe(views).odds[known])


def as_tree(answer: Answer) -> dict[str, Any]:
    """An answer as plain values."""
    return {
        "id": None,
        "label": answer.label,
        "guess": answer.guess,
        "confidence": answer.confidence,
        "source": str(answer.source),
        "outcome": str(answer.outcome),
        "reason": answer.reason,
        "probabilities": answer.probabilities,
        "uncertainty": answer.uncertainty,
        "measured_on": answer.measured_on,
        "classes": None if answer.classes is None else list(answer.classes),
    }
