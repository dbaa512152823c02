"""The command, or the call from Python, that runs one setting of a sweep on test rows."""

import json
import shlex
from typing import Any

from fedpn.core.settings import Tree, leaves, named_code, parse_setting
from fedpn.data.sources.given import NAME
from fedpn.runs.studies.grid import Plan

FLAGS = ("dataset", "algorithm", "clients", "rounds")


def run_command(plan: Plan, choice: Tree) -> str:
    """What to type for a run with these settings, and by the seed whose test rows were kept."""
    if plan.given.get("dataset") == NAME:
        return _call(plan, choice)
    typed = plan.layers[1:] if plan.config_file else plan.layers
    settings = _settled(plan, {k: v for layer in typed for k, v in leaves(layer)}, choice)
    flags = [w for key in FLAGS if key in settings for w in (f"--{key}", str(settings[key]))]
    others = [key for key in settings if key not in FLAGS]
    sets = [w for key in others for w in ("--set", f"{key}={_toml(key, settings[key])}")]
    file = [plan.config_file] if plan.config_file else []
    trust = ["--trust"] if file and named_code(plan.layers[0]) else []
    return shlex.join(
        ["fedpn", "run", *file, *trust, *flags, *sets, "--seed", str(plan.first_seed)]
    )


def _call(plan: Plan, choice: Tree) -> str:
    """The same from Python, where data are in memory."""
    settings = _settled(plan, plan.given, choice) | {"seed": plan.first_seed}
    named = [f"{k.replace('.', '__')}={v!r}" for k, v in settings.items() if k != "dataset"]
    return f"fedpn.run(out, dataset=data, {', '.join(named)})"


def _settled(plan: Plan, typed: Tree, choice: Tree) -> Tree:
    """What was asked for and what was chosen, as far as it speaks to the algorithm that runs."""
    algorithm = plan.algorithm_of(choice)
    rest = {key: value for key, value in typed.items() if key not in choice and key != "seed"}
    return {k: v for k, v in (rest | choice).items() if plan.speaks_to(k, algorithm)}


def _toml(key: str, value: Any) -> str:
    """A value as `--set` reads it.

    >>> _toml("a", "mlp"), _toml("a", "1"), _toml("a", ["x", "y"]), _toml("a", True)
    ('mlp', '"1"', '["x", "y"]', 'true')
    """
    if isinstance(value, str) and dict(leaves(parse_setting(f"{key}={value}"))).get(key) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
