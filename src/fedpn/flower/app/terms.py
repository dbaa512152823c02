"""What a run is told when it is submitted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.flower.app.records import read_config
from fedpn.flower.app.whole import MOST
from fedpn.runs.config import Config, to_tree


@dataclass(frozen=True)
class Terms:
    """What a run is told when it is submitted."""

    config: Config
    text: str  # the same, as nodes will read it
    out: Path
    resume: bool
    nodes: int  # that must be there before the first round
    timeout: float  # seconds to wait for nodes
    patience: float  # seconds for the replies of a round
    secure: bool = False  # whether uploads are masked, so that only their sum is seen
    base: Path | None = None  # a finished run, which nodes join or leave
    leaves: str = ""  # who leaves it


def read_terms(settings: Mapping[str, Any]) -> Terms:
    """Reads a run's settings."""
    config = read_config(str(settings["config"]))
    nodes, out = int(settings["nodes"]), Path(str(settings["out"]))
    if nodes < 1:
        raise UserError(f"nodes is {nodes}, but must be at least 1")
    if not out.is_absolute():
        raise UserError(f"--out {out} must be an absolute path on the SuperLink's machine")
    config = replace(config, clients=nodes)
    text = json.dumps(to_tree(config), ensure_ascii=False)
    if config.data.unseen:
        raise UserError("data.unseen is for simulated federations; here, nodes may come later")
    if config.data.without:
        raise UserError("data.without is for simulated federations; here, leave the nodes out")
    if config.faults.attack != "none":
        raise UserError("faults.attack is for simulated federations: nodes are who they are")
    secure = bool(settings.get("secure", False))
    if secure and config.aggregation.rule != "mean":
        raise UserError(
            f"aggregation.rule={config.aggregation.rule} must see single uploads, which secure "
            "aggregation hides; use one or the other"
        )
    if secure and config.faults.max_norm:
        raise UserError(
            "faults.max_norm must see single uploads, which secure aggregation hides; use one or "
            "the other"
        )
    if secure and (config.method.optimizer, config.method.optimizer_state) == ("adam", "average"):
        raise UserError(
            "Adam's moments are too small for the whole numbers that masks are made of: set "
            "optimizer_state to keep or reset, or use SGD"
        )
    if secure and nodes > MOST:
        raise UserError(f"masked sums hold up to {MOST} nodes, not {nodes}; use fewer nodes")
    if secure and nodes < 2:
        raise UserError("secure aggregation of a single node would hide nothing")
    base, leaves = str(settings.get("base", "")), str(settings.get("leaves", ""))
    if base and (not Path(base).is_absolute() or settings["resume"]):
        raise UserError(
            f"--base {base} must be an absolute path on the SuperLink's machine, without --resume"
        )
    if leaves and not base:
        raise UserError(f"--forget {leaves} needs --base: the finished run that it leaves")
    return Terms(
        config=config,
        text=text,
        out=out,
        resume=bool(settings["resume"]),
        nodes=nodes,
        timeout=float(settings["timeout"]),
        patience=float(settings["round-timeout"]),
        secure=secure,
        base=Path(base) if base else None,
        leaves=leaves,
    )
