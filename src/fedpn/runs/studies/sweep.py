"""A sweep from Python, as `fedpn sweep` does it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.runs.api import name_code, read_settings
from fedpn.runs.studies.conduct import begin
from fedpn.runs.studies.grid import Axis, Plan
from fedpn.runs.studies.outcome import Sweep
from fedpn.runs.studies.scheduler import Job


def sweep(
    out: str | Path,
    over: Mapping[str, Sequence[Any]],
    seeds: int = 3,
    jobs: int = 2,
    tell: Callable[[str, float, str], None] | None = None,
    **settings: Any,
) -> Sweep:
    """Tries all combinations of values, with so many seeds, and judges them on tuning rows.

    `fedpn.sweep("sweeps/a", over={"fedpn__gamma": [0.001, 0.01]}, dataset="mnist", rounds=10)`;
    settings are those of `fedpn.run`. Cells are processes, `jobs` at a time, and are kept: the same
    call goes on with a sweep that was stopped, and one with more values or seeds runs what is
    missing. Where data are in memory, or code is of the script itself, cells run here, one after
    the other. `tell(cell, done, words)` hears how far each has come, from 0 to 1.
    """
    tree, given = read_settings(settings)
    axes = tuple(_axis(key, values) for key, values in over.items())
    if not axes:
        raise UserError('over is empty: name settings and values, as in {"fedpn__gamma": [0.01]}')
    if jobs < 1:
        raise UserError(f"jobs is {jobs}, but must be at least 1")
    study = begin(Plan((tree,), axes, seeds), Path(out), given)

    def hear(job: Job, done: float, words: str = "") -> None:
        if tell is not None:
            tell(job.name, done, words)

    with study.claimed():
        found = study.outcome(study.play(jobs, hear, lambda: False))
        found.write()
    return found


def _axis(key: str, values: Sequence[Any]) -> Axis:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise UserError(f"over: the values of {key} are {values!r}, but must be a list of some")
    return Axis(key.replace("__", "."), tuple(name_code(key, value) for value in values))
