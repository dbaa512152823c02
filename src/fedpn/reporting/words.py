"""What people call the ways of answering, the sets of rows and the outcomes, and their colours."""

from collections.abc import Sequence

from fedpn.routing.outcomes import Outcome, Source

SET_NAMES = {"ind": "InD", "ood": "OOD", "mix": "Mix"}
SET_WORDS = {
    "ind": "inputs of a client's own classes",
    "ood": "inputs of other classes",
    "mix": "as many of both",
}
# A way of answering, and what it is; the name is a class of the page's style too.
WAYS = {
    "local": "the client's own model alone",
    "personal": "the client's own model, which always answers",
    "global": "the federation's model alone",
    "switch": "the paper's switch between both",
    "bayes": "Bayes' rule over both",
    "oracle": "is told which inputs are foreign: these go to the federation's model, own ones to "
    "the client's",
}
SOURCES = {
    Source.LOCAL: "the client's own model",
    Source.GLOBAL: "the federation's model",
    Source.NOBODY: "nobody",
}
TAKEN = {  # under Bayes' rule, in which both models have a say in every answer
    Source.LOCAL: "as the client's own",
    Source.GLOBAL: "as others'",
    Source.NOBODY: "by nobody",
}
OUTCOMES = {
    Outcome.LOCAL_CONFIDENT: "own model, sure",
    Outcome.LOCAL_AMBIGUOUS: "nobody: known, but unclear",
    Outcome.LOCAL_OOD: "federation's model",
    Outcome.GLOBAL_UNCERTAIN: "nobody: the federation is unsure",
    Outcome.STRANGER: "nobody: a stranger",
}


def style_of(who: str) -> str:
    """The class of a way of answering; names from files are none.

    >>> style_of("switch"), style_of('"><script>')
    ('switch', 'other')
    """
    return who if who in WAYS else "other"


def outcome_style(outcome: Outcome) -> str:
    """
    >>> outcome_style(Outcome.LOCAL_OOD)
    'local-ood'
    """
    return outcome.label.replace("_", "-")


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "round"), count(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Sequence[str], most: int = 8) -> str:
    """
    >>> some(["1", "2", "3"], most=2)
    '1, 2 and 1 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def in_bytes(number: float) -> str:
    """
    >>> in_bytes(999), in_bytes(12_345), in_bytes(3.2e9)
    ('999 B', '12.3 kB', '3.2 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"
