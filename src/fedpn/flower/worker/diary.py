"""What a worker says of its work: sentences for the node's log, a status file for who watches."""

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from fedpn import __version__
from fedpn.flower.status import FILE, Warnings, write_status
from fedpn.flower.watch.words import size

WORDS = {
    "query.introduce": "told its name and the form of its data",
    "query.alive": "told that it is here",
    "train.personalise": "made its own model",
}
NOTHING = {"received": 0, "sent": 0}  # bytes


@dataclass
class Diary:
    """Tells of one message after the other."""

    place: Path  # the node's state
    name: str = ""
    started: float = field(default_factory=time.time)
    answered: int = 0
    refused: int = 0
    last: dict[str, Any] = field(default_factory=lambda: dict(NOTHING))  # of the run in hand
    warnings: Warnings = field(default_factory=Warnings)

    def say(self, text: str) -> None:
        print(f"fedpn: {text}", flush=True)

    def write(self, worker: str) -> None:
        """Replaces the status file; `worker` is how the worker is."""
        from fedpn.flower.app.models import current

        write_status(
            self.place / FILE,
            {
                "role": "node",
                "version": __version__,
                "name": self.name,
                "pid": os.getpid(),
                "started": self.started,
                "updated": time.time(),
                "worker": worker,
                "answered": self.answered,
                "refused": self.refused,
                "model": current(self.place),
                "warnings": self.warnings.tree(),
                **self.last,
            },
        )

    def begin(self, kind: str, content: RecordDict, received: int) -> None:
        """A message is taken in hand."""
        order = dict(content.config_records.get("order", {}))
        run = str(order.get("run", "")) or self.last.get("run")
        if run != self.last.get("run"):
            self.last = dict(NOTHING)
        rounds = _rounds(order.get("config"))
        self.last |= {"run": run, "rounds": rounds or self.last.get("rounds")}
        if order.get("phase"):
            self.last["phase"] = str(order["phase"])
        if kind == "train":
            self.last["round"] = _whole(order.get("round")) + 1
        self.last["received"] += received
        self.write("busy")

    def end(self, kind: str, reply: RecordDict | None, sent: int, seconds: float) -> None:
        """It is answered; where there is no reply, it could not be."""
        report = dict(reply.config_records.get("report", {})) if reply is not None else {}
        why = str(report.get("error", "")) if reply is not None else "failed; see above"
        self.name = str(report.get("name", "")) or self.name
        self.last["seconds"] = seconds
        self.last["sent"] += sent
        if why:
            self.refused += 1
            self.warnings.add(why)
            self.say(f"{self._what(kind)}: {why}")
        else:
            self.answered += 1
            rows, loss = _rows(report.get("facts")), report.get("loss")
            self.last |= {"rows": rows or self.last.get("rows")}
            if kind == "train" and isinstance(loss, float):
                self.last["loss"] = loss
            self.say(self._sentence(kind, report, sent, seconds))
        self.write("ready")

    def _what(self, kind: str) -> str:
        if kind == "train" and self.last.get("round"):
            of = f" of {self.last['rounds']}" if self.last.get("rounds") else ""
            return f"round {self.last['round']}{of}"
        phase = self.last.get("phase")
        return f"{phase!r}" if kind.startswith("train") and phase else kind

    def _sentence(self, kind: str, report: dict[str, Any], sent: int, seconds: float) -> str:
        run = str(self.last.get("run") or "")[:8]
        words = WORDS.get(kind, f"{self._what(kind)} is done")
        loss = report.get("loss")
        told = f", loss {loss:.4f}" if kind == "train" and isinstance(loss, float) else ""
        whose = f"run {run}: " if run else ""
        return f"{whose}{words}{told}, {seconds:.1f} s, {size(sent)} sent"


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**31 else 0


def _rounds(config: Any) -> int:
    return _whole(_tree(config).get("rounds"))


def _rows(facts: Any) -> int:
    return _whole(_tree(facts).get("rows"))


def _tree(text: Any) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}
