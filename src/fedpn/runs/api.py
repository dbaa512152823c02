"""The whole way of the data from Python, as `fedpn run` goes it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.core.settings import Tree, build, leaves, merge, need_trust, nest
from fedpn.core.source import name_of_own
from fedpn.data.dataset import Dataset
from fedpn.data.sources.given import NAME, take
from fedpn.federated.listener import Announcing, Listener
from fedpn.runs import pipeline
from fedpn.runs.config import chosen_dataset, resolve
from fedpn.runs.defaults import default_for
from fedpn.runs.directory import stored
from fedpn.runs.result import Run
from fedpn.runs.settings import DataSettings

PLAIN = (str, int, float, bool, list, tuple, type(None), Path)
WORDS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"--set \"([^\"]*)\""), r"--set \1"),
    (re.compile(r"--set ([\w.]+)="), lambda found: found[1].replace(".", "__") + "="),
    (re.compile(r"--(resume|overwrite|trust)\b"), r"\1=True"),
    (re.compile(r"--([a-z]+)\b"), r"\1"),
)


def run(
    out: str | Path,
    tell: Callable[..., None] | None = None,
    listener: Listener | None = None,
    resume: bool = False,
    overwrite: bool = False,
    trust: bool = False,
    **settings: Any,
) -> Run:
    """Runs a federation into the directory `out`.

    Settings are the keys that `fedpn settings` lists, a double underscore for each dot:
    `fedpn.run("runs/a", dataset="mnist", rounds=10, fedpn__gamma=0.02)`. `dataset` may also be data
    in memory: `(x, y)`, `(x, y, client)` or `(x, y, client, group)`, a data frame, a PyTorch
    dataset. `algorithm`, `model__encoder`, `model__density`, `routing__router`, `data__partition`
    and the like may be classes or functions of your own, typed into a notebook or not, and an
    encoder may be a module that is made already; they are kept with the run.
    `resume` goes on with the run that is there (code that it names is run only if it is named here
    too, or with `trust`), `overwrite` replaces it. A `Listener` hears how the
    run goes; `tell(stage, done, of, **facts)` is the short form of one.
    """
    if not isinstance(out, str | Path):
        raise UserError(f"out is a {type(out).__name__}: give the directory of the run, as a text")
    heard = listener or (Listener() if tell is None else _Teller(tell))
    try:
        tree, given = read_settings(settings)
        if resume:
            kept = stored(Path(out))
            need_trust(kept, f"--resume: {out}", trust, [value for _, value in leaves(tree)])
            tree = merge(kept, tree)
        default = default_for([tree], chosen_dataset([tree]), given)
        config, heard = resolve([default.settings, tree]), Announcing([heard], default.remark)
        pipeline.run(config, Path(out), resume, heard, given=given, overwrite=overwrite)
    except UserError as error:
        raise type(error)(in_python(str(error))) from None
    return Run(out)


def in_python(text: str) -> str:
    """A message that speaks of the command line, as whoever calls `fedpn.run` would say it.

    >>> in_python("use fewer --clients, or --set data.partition=dirichlet; or give --overwrite")
    'use fewer clients, or data__partition=dirichlet; or give overwrite=True'
    """
    for spoken, said in WORDS:
        text = spoken.sub(said, text)
    return text


def read_settings(settings: dict[str, Any]) -> tuple[Tree, Dataset | None]:
    """Settings as Python has them -> as files have them, and data that are in memory."""
    named = {key: name_code(key, value) for key, value in settings.items() if key != "dataset"}
    tree = nest({key.replace("__", "."): value for key, value in named.items()})
    data = settings.get("dataset", "")
    if isinstance(data, str | Path):
        return tree | ({"dataset": str(data)} if str(data) else {}), None
    columns = build(DataSettings, tree.get("data", {}), "data")
    return tree | {"dataset": NAME}, take(data, columns.wanted())


def name_code(key: str, value: Any) -> Any:
    """A class, function or module of the user's own by its name, as settings have it."""
    if isinstance(value, dict):
        return {inner: name_code(f"{key}.{inner}", part) for inner, part in value.items()}
    if isinstance(value, PLAIN):
        return value
    return value.item() if hasattr(value, "item") else name_of_own(key, value)  # NumPy's numbers


class _Teller(Listener):
    """Passes progress on to a function."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell = tell

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        self.tell(stage, done, of, **facts)
