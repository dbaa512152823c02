"""The name table of rules, and how one is kept as named tensors."""

from collections.abc import Mapping
from dataclasses import fields

import torch

from fedpn.core.errors import UserError
from fedpn.core.settings import find_object, one_of
from fedpn.core.trees import Params
from fedpn.routing.bayes import Bayes
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Rule

RULES: dict[str, type[Rule]] = {"quantiles": Quantiles, "bayes": Bayes}


def find_rule(kind: str) -> type[Rule]:
    """Takes a rule from the table, or the user's own: module:Class or file.py:Class."""
    if ":" not in kind:
        one_of("routing.rule", kind, list(RULES))
        return RULES[kind]
    found = find_object("routing.rule", kind, "rule")
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise UserError(f"routing.rule: {kind!r} is no class below Rule")
    return found


def to_state(rules: Mapping[str, Rule]) -> Params:
    """Rules by their kinds as named tensors: a client's slot `rule`, and its file of a bundle."""
    return {
        f"{kind}/{field.name}": torch.as_tensor(getattr(rule, field.name), dtype=torch.float64)
        for kind, rule in rules.items()
        for field in fields(rule)
    }


def from_state(kind: str, state: Params) -> Rule:
    """Reads a rule from named tensors."""
    rule, mark = find_rule(kind), f"{kind}/"
    values = {n.removeprefix(mark): t for n, t in state.items() if n.startswith(mark)}
    strange = values.keys() ^ {field.name for field in fields(rule)}
    if strange:
        raise UserError(f"the rule {kind!r} cannot be read: {', '.join(sorted(strange))}")
    if any(t.isnan().any() for t in values.values()):
        raise UserError(f"the rule {kind!r} has a number that is none")
    numbers = {field.name for field in fields(rule) if field.type in (float, "float")}
    if any(values[name].dim() for name in numbers):
        raise UserError(f"the rule {kind!r} cannot be read: a number is a list")
    return rule(**{name: float(t) if name in numbers else t for name, t in values.items()})


def kinds_of(state: Params) -> list[str]:
    """The kinds of rules that a client has.

    >>> kinds_of({"quantiles/epistemic": torch.tensor(1.0), "bayes/own": torch.ones(2)})
    ['quantiles', 'bayes']
    """
    return list(dict.fromkeys(name.rpartition("/")[0] for name in state))
