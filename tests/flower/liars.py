"""A federation on one machine, one of whose sides lies: helpers of the hostile tests."""

import json

import torch
from flwr.app import ConfigRecord, Context, RecordDict

from fedpn.core.trees import flatten
from fedpn.flower.app.packed import to_bytes
from fedpn.flower.app.records import unpack
from fedpn.flower.app.server_app import app
from fedpn.runs.config import resolve, to_tree
from flower_grid import SERVER, LocalGrid

NODES, LIAR = 4, 102
SMALL = {
    "dataset": "digits",
    "clients": NODES,
    "rounds": 2,
    "data": {"limit": 400, "partition": "iid"},
    "model": {"layers": 2, "dim": 4},
    "train": {"steps": 2, "batch": 8},
    "method": {"adapt_steps": 2, "adapt_epochs": 0},
    "head": {"filters": 4, "fourier": 5},
}


def settings(algorithm="fedavg", *layers):
    return resolve([SMALL | {"algorithm": algorithm}, *layers])


def nodes(home, count=NODES):
    return {
        100 + i: {"partition-id": i, "num-partitions": count, "state-dir": str(home / f"node{i}")}
        for i in range(count)
    }


def conduct(grid, config, out, **changes):
    terms = {"config": json.dumps(to_tree(config)), "out": str(out), "resume": False}
    terms |= {"nodes": len(grid.nodes), "timeout": 0.2, "round-timeout": 60.0}
    app(grid, Context(7, SERVER, {}, RecordDict(), terms | changes))
    return json.loads((out / "metrics.json").read_text())


def tensors(content):
    return flatten(unpack(content, ()))


def with_tensors(content, change, more=None):
    """The same report, with other tensors, and perhaps more of them."""
    changed = {name: change(name, t) for name, t in tensors(content).items()} | (more or {})
    return with_report(content, tensors=to_bytes(changed).tobytes())


def without_tensors(content):
    """The same report, and nothing else."""
    report = dict(content.config_records["report"])
    report.pop("tensors", None)
    return RecordDict({"report": ConfigRecord(report)})


def with_report(content, **changes):
    report = dict(content.config_records["report"]) | changes
    return RecordDict({"report": ConfigRecord(report)} | dict(content.array_records))


def with_facts(content, **changes):
    facts = json.loads(dict(content.config_records["report"])["facts"]) | changes
    return with_report(content, facts=json.dumps(facts))


def scaled(content, by, only=""):
    return with_tensors(content, lambda name, t: t * by if only in name else t)


def lying(home, kind, lie):
    """Four nodes, one of which lies in messages of a kind."""
    grid = LocalGrid(nodes(home))
    grid.spoil = lambda k, n, c: lie(c) if (k, n) == (kind, LIAR) else c
    return grid


def full(value):
    return lambda name, t: torch.full_like(t, value) if t.is_floating_point() else t
