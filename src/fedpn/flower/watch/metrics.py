"""What is watched, in the text form that Prometheus reads."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fedpn.flower.watch.standing import RUN_STATES, SITE_STATES, state_of
from fedpn.flower.watch.status import HERE, Member, Run, Site, Unreadable

Labels = dict[str, str]


class Family(NamedTuple):
    """A metric: its name without `fedpn_`, its kind, and what it says."""

    name: str
    kind: str
    about: str


RUN_INFO = Family("run_info", "gauge", "A run, always 1.")
RUN_STATE = Family("run_state", "gauge", "1 for the state that a run is in, else 0.")
RUN_WARNINGS = Family("run_warnings", "gauge", "Warnings that a run's status holds, 50 at most.")
ACCURACY = Family("run_accuracy", "gauge", "Accuracy of a finished run, from 0 to 1.")
MEMBER_STATE = Family("run_node_state", "gauge", "1 for the state of a node in a run, else 0.")
NODE_INFO = Family("node_info", "gauge", "A node, as it tells of itself, always 1.")
NODE_STATE = Family("node_state", "gauge", "1 for the state that a node is in, else 0.")
NODE_LINK = Family("node_connected", "gauge", "Whether a node is connected to its SuperLink.")
UNREADABLE = Family("status_unreadable", "gauge", "Status files that cannot be read.")
RUN_NUMBERS = {
    "round": Family("run_round", "gauge", "Rounds that are done."),
    "rounds": Family("run_rounds", "gauge", "Rounds that there shall be."),
    "loss": Family("run_loss", "gauge", "Mean loss of the last round."),
    "left": Family("run_left_seconds", "gauge", "Seconds that a run will still take, by guess."),
    "started": Family("run_started_timestamp_seconds", "gauge", "When a run began."),
    "updated": Family("run_updated_timestamp_seconds", "gauge", "When a run last told of itself."),
}
MEMBER_NUMBERS = {
    "seen": Family("run_node_seen_timestamp_seconds", "gauge", "When a node last answered a run."),
    "round": Family("run_node_round", "gauge", "The last round that a node took part in."),
    "rows": Family("run_node_rows", "gauge", "Training rows of a node."),
    "seconds": Family("run_node_seconds", "gauge", "Seconds of a node's last answer."),
    "loss": Family("run_node_loss", "gauge", "Loss of a node in its last round."),
    "sent": Family("run_node_sent_bytes_total", "counter", "Bytes sent to a node."),
    "received": Family("run_node_received_bytes_total", "counter", "Bytes received from a node."),
}
NODE_NUMBERS = {
    "round": Family("node_round", "gauge", "The last round that this node took part in."),
    "rows": Family("node_rows", "gauge", "Training rows of this node."),
    "seconds": Family("node_seconds", "gauge", "Seconds of this node's last answer."),
    "loss": Family("node_loss", "gauge", "Loss of this node in its last round."),
    "sent": Family("node_sent_bytes", "gauge", "Bytes that this node sent in its run."),
    "received": Family("node_received_bytes", "gauge", "Bytes that this node got in its run."),
    "answered": Family("node_answered_total", "counter", "Messages answered since the start."),
    "refused": Family("node_refused_total", "counter", "Messages refused since the start."),
    "updated": Family("node_updated_timestamp_seconds", "gauge", "When this node last spoke."),
}
FAMILIES = (
    *(RUN_INFO, RUN_STATE, *RUN_NUMBERS.values(), RUN_WARNINGS, ACCURACY),
    *(MEMBER_STATE, *MEMBER_NUMBERS.values()),
    *(NODE_INFO, NODE_STATE, NODE_LINK, *NODE_NUMBERS.values(), UNREADABLE),
)
Sample = tuple[Family, Labels, float]


def metrics(items: Iterable[Run | Site | Unreadable], now: float) -> str:
    """All metrics; a place labels its own, so that no two samples are the same."""
    listed = list(items)
    samples = [sample for item in listed for sample in _samples(item, now)]
    bad = sum(isinstance(item, Unreadable) for item in listed)
    samples.append((UNREADABLE, {}, float(bad)))
    lines = []
    for family in FAMILIES:
        found = [(labels, value) for name, labels, value in samples if name is family]
        if found:
            lines.append(f"# HELP fedpn_{family.name} {family.about}")
            lines.append(f"# TYPE fedpn_{family.name} {family.kind}")
            lines += [f"fedpn_{family.name}{_braced(labels)} {v!r}" for labels, v in found]
    return "\n".join(lines) + "\n"


def _samples(item: Run | Site | Unreadable, now: float) -> Iterator[Sample]:
    if isinstance(item, Run):
        yield from _run(item, now)
    elif isinstance(item, Site):
        yield from _site(item, now)


def _run(run: Run, now: float) -> Iterator[Sample]:
    place = {"place": run.place}
    facts = ("run", "name", "dataset", "algorithm", "version")
    yield RUN_INFO, place | {key: getattr(run, key) or "" for key in facts}, 1.0
    yield from _one_of(RUN_STATE, place, RUN_STATES, state_of(run, now))
    yield from _numbers(run, RUN_NUMBERS, place)
    yield RUN_WARNINGS, place, float(len(run.warnings))
    for row, cells in run.figures.items():
        for rows, value in cells.items():
            if value is not None:
                yield ACCURACY, place | {"answers": row, "rows": rows}, value
    for node in run.nodes:
        labels = place | {"node": node.name}
        yield from _one_of(MEMBER_STATE, labels, HERE, node.state)
        yield from _numbers(node, MEMBER_NUMBERS, labels)


def _site(site: Site, now: float) -> Iterator[Sample]:
    place = {"place": site.place}
    facts = ("name", "version", "run", "model")
    yield NODE_INFO, place | {key: getattr(site, key) or "" for key in facts}, 1.0
    yield from _one_of(NODE_STATE, place, SITE_STATES, state_of(site, now))
    if site.link is not None:
        yield NODE_LINK, place, float(site.link.state == "connected")
    yield from _numbers(site, NODE_NUMBERS, place)


def _one_of(
    family: Family, labels: Labels, names: Iterable[str], now: str | None
) -> Iterator[Sample]:
    for name in names:
        yield family, labels | {"state": name}, float(name == now)


def _numbers(
    item: Run | Site | Member, families: dict[str, Family], labels: Labels
) -> Iterator[Sample]:
    for key, family in families.items():
        value = getattr(item, key)
        if value is not None:
            yield family, labels, float(value)


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}"


def quoted(text: str) -> str:
    r"""
    >>> quoted('a"b\\c')
    'a\\"b\\\\c'
    """
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
