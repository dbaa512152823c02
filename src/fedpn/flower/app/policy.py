"""What a node lets a server ask of it: a file of the node's own, which no run can change."""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from fedpn.algorithms import ALGORITHMS
from fedpn.core.bounds import Bounds, Count, NonNegative, Positive
from fedpn.core.errors import UserError
from fedpn.core.settings import build, leaves, named_code, read_toml, words
from fedpn.data.batches import steps_of
from fedpn.data.sources.datasets import names
from fedpn.flower.app.told import Told
from fedpn.runs.config import Config

FILE = "policy.toml"  # in a node's state
_WORD = re.compile(r"[\w-]{1,64}")


@dataclass(frozen=True)
class Policy:
    """What a node allows. The defaults let honest runs pass that fedpn's own methods make."""

    algorithms: Annotated[tuple[str, ...], "by name; none: all that fedpn has"] = ()
    code: Annotated[bool, "whether modules that travel with a run are executed"] = False
    label: Annotated[str, "of a table, the column that may be learned; none: any"] = ""
    columns: Annotated[tuple[str, ...], "of a table, the columns that may be read; none: all"] = ()
    names: Annotated[bool, "whether names of classes and columns are told to the server"] = True
    least_rows: Annotated[Count, "training rows; with fewer the node takes no part"] = 5
    least_batch: Annotated[Count, "rows of a batch"] = 2
    most_steps: Annotated[Count, "local steps for one message"] = 1_000_000
    most_rounds: Annotated[int, Bounds(low=0, high=10**6), "rounds of a run"] = 10_000
    runs_a_day: Annotated[Count, "runs that the node takes part in"] = 50
    messages_a_day: Annotated[Count, "messages that the node answers"] = 50_000
    secure: Annotated[bool, "whether all that is uploaded must be masked"] = False
    copies: Annotated[
        Literal["masked", "always", "never"],
        "whether keyed hashes of rows are summed, to find rows that other nodes have as well: by "
        "them a server could test whether the node has a row that it knows, unless they are masked",
    ] = "masked"
    noise: Annotated[
        NonNegative, "that the node itself adds to each move of a model, in units of the clip"
    ] = 0.0
    clip: Annotated[Positive, "with noise: the length to which a move is cut"] = 1.0


def read_policy(state: Path) -> Policy:
    """The policy of a node, or the usual one."""
    path = state / FILE
    if not path.exists():
        return Policy()
    policy = build(Policy, read_toml(path), "")
    for name in policy.algorithms:
        if name not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise UserError(f"{path}: there is no algorithm {name!r}; there are {known}")
    return policy


def write_policy(policy: Policy) -> str:
    """A policy as TOML, each line with its words."""
    said = words(Policy)
    lines = ["# What this node lets a server ask of it. No run can change this file.", ""]
    for field in fields(Policy):
        value = getattr(policy, field.name)
        told = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
        lines += [f"# {said[field.name]}", f"{field.name} = {told}", ""]
    return "\n".join(lines)


def refuse_code(text: str, policy: Policy) -> None:
    """Refuses settings that name code, before anything in them is looked for."""
    try:
        tree = json.loads(text)
        code = named_code(tree) if isinstance(tree, dict) else {}
        values = [value for _, value in leaves(tree)] if isinstance(tree, dict) else []
    except (ValueError, RecursionError) as error:
        raise UserError(f"the settings that came with the run cannot be read: {error}") from None
    if code and not policy.code:
        raise UserError(
            f"this node executes no code that a run brings ({', '.join(code)}); its policy would "
            "have to say code = true"
        )
    if any(isinstance(value, str) and "\0" in value for value in values):
        raise UserError("the settings that came with the run hold a zero byte")


def check_steps(config: Config, policy: Policy, rows: int, late: bool = False) -> None:
    """Refuses a run that would have the node compute for longer than it allows.

    A node that comes `late` plays rounds by itself, for one message.
    """
    train, method = config.train, config.method
    a_round = steps_of(rows, train.batch, train.epochs) if train.epochs else train.steps
    rounds = (train.late if late else 1) if config.rounds else 0
    own = steps_of(rows, train.batch, method.adapt_epochs, method.adapt_steps)
    for what, steps in (("train", rounds * a_round), ("adapt", own)):
        if steps > policy.most_steps:
            raise Told(
                f"this node's policy: at most {policy.most_steps} local steps for one message "
                f"(most_steps), and the settings of {what} make {steps} of its {rows} rows"
            )


def check(config: Config, policy: Policy, own: bool) -> None:
    """Refuses a run that asks for more than the node allows; `own` where it has its own data."""
    for refusal in _refusals(config, policy, own):
        raise UserError(f"this node's policy: {refusal}")


def _refusals(config: Config, policy: Policy, own: bool) -> Any:
    train = config.train
    if policy.algorithms and config.algorithm not in policy.algorithms:
        yield f"{config.algorithm} is not among its algorithms"
    if config.model.pretrained:
        yield "no file is read that a server names (model.pretrained)"
    if not own and not (_WORD.fullmatch(config.dataset) and config.dataset in names()):
        yield "no file is read that a server names (dataset): only named sets are"
    if train.batch < policy.least_batch:
        yield f"a batch has at least {policy.least_batch} rows (train.batch is {train.batch})"
    if config.rounds > policy.most_rounds:
        yield f"at most {policy.most_rounds} rounds, not {config.rounds}"
    if own:
        yield from _of_tables(config, policy)


def _of_tables(config: Config, policy: Policy) -> Any:
    data = config.data
    if policy.label and data.label != policy.label:
        yield "another column is its label (data.label)"
    if policy.columns and not policy.label and data.label and data.label not in policy.columns:
        yield "the column that is learned is not among its columns (data.label)"
    if policy.columns and data.group and data.group not in policy.columns:
        yield "the column of groups is not among its columns (data.group)"
    strange = set(data.features) - set(policy.columns)
    if policy.columns and (strange or not data.features):
        yield "data.features must name columns that it allows, and no others"
    if not policy.names and not data.classes:
        yield "it does not tell the names of its classes: the run must name them in data.classes"
