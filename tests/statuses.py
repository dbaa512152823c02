"""Status files as a federation writes them, made up."""

import json
import os
import time

MARKUP = "<img src=x onerror=alert(1)>"


def write(place, tree, name="status.json"):
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return place


def member(name, **changes):
    node = {"name": name, "state": "here", "seen": time.time() - 2, "round": 3, "rows": 420}
    node |= {"seconds": 1.9, "loss": 0.402, "sent": 1_234_567, "received": 1_100_000, "why": ""}
    return node | changes


def going(**changes):
    """A run with a node that is away, one that is left out, and warnings."""
    now = time.time()
    nodes = [
        member("st-anna"),
        member("st-berta", state="away", seen=now - 95, round=2, rows=318, loss=0.377),
        member(
            "st-clara",
            state="left out",
            seen=now - 40,
            round=1,
            rows=77,
            why="its upload was 214 times as long as the others' in round 1",
        ),
    ]
    warnings = [
        {"time": now - 90, "text": "st-berta did not answer round 3 in 60 s"},
        {"time": now - 40, "text": "st-clara is left out: its upload is no model"},
    ]
    tree = {"format": 1, "role": "server", "version": "0.2.0", "run": "ab12cd34", "secure": False}
    tree |= {"name": "runs/first", "dataset": "digits", "algorithm": "fedpn", "pid": os.getpid()}
    tree |= {"started": now - 724, "updated": now - 2, "ended": None, "phase": "federate"}
    tree |= {"round": 3, "rounds": 20, "left": 251.0, "loss": 0.314, "figures": None}
    return tree | {"nodes": nodes, "warnings": warnings} | changes


def finished(**changes):
    accuracy = {
        "local": {"ind": 0.973, "ood": 0.0, "mix": 0.487},
        "global": {"ind": 0.931, "ood": 0.925, "mix": 0.928},
        "switch": {"ind": 0.958, "ood": 0.902, "mix": 0.93},
        "oracle": {"ind": 0.973, "ood": None, "mix": 0.949},
    }
    ended = {"ended": "finished", "round": 20, "left": None, "phase": None, "pid": 2**22 + 1}
    nodes = [member(f"node-{i}", round=20) for i in range(3)]
    return (
        going(**ended)
        | {"nodes": nodes, "warnings": [], "figures": {"accuracy": accuracy}}
        | changes
    )


def failed(**changes):
    why = "failed: 2 of 3 nodes did not answer for 3 rounds; start them and run again with --resume"
    return going(ended=why, left=None) | changes


def node(**changes):
    """A node in the middle of a run."""
    now = time.time()
    tree = {"format": 1, "role": "node", "version": "0.2.0", "name": "st-anna", "pid": os.getpid()}
    tree |= {"started": now - 7200, "updated": now - 1, "worker": "busy", "run": "ab12cd34"}
    tree |= {"phase": "federate", "round": 3, "rounds": 20, "rows": 420, "seconds": 1.9}
    tree |= {"loss": 0.402, "received": 1_234_567, "sent": 1_100_000, "answered": 14, "refused": 1}
    warnings = [{"time": now - 300, "text": "a run asked for plain uploads and was refused"}]
    return tree | {"model": "0007", "warnings": warnings} | changes


def link(**changes):
    tree = {"format": 1, "state": "connected", "superlink": "link.hospital.example:443"}
    return tree | {"since": time.time() - 7190, "why": ""} | changes
