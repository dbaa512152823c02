"""What to watch in a run: whom it serves worst, what it may hide, what it promises."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedpn.reporting.classes import ByClass
from fedpn.reporting.finished import ClientMetrics, Metrics, Origin
from fedpn.reporting.history import Round, left_out
from fedpn.reporting.tables import judged_by, share
from fedpn.reporting.words import count, some
from fedpn.routing.risk_control import BEYOND_CHANCE, above
from fedpn.routing.standards import promise_in_words

BEHIND = 0.1  # below the mean of clients: such a client is badly off
RARELY_FOUND = 0.5
WEAK = 10.0  # a larger ε promises next to nothing
CLEARLY = 0.01  # a smaller difference is no alarm


@dataclass(frozen=True)
class Watch:
    """Something to watch."""

    title: str
    text: str
    alarm: str = ""  # in a few words, where it is more than worth knowing


@dataclass(frozen=True)
class Seen:
    """What is looked at."""

    run: Metrics
    warnings: Sequence[str]  # of all seeds
    clients: Sequence[ClientMetrics]
    by_class: ByClass | None
    history: Sequence[Round]
    has_gate: bool  # by which strangers are told
    origin: Origin


def watch(seen: Seen) -> list[Watch]:
    """All there is to watch, what alarms first."""
    found = [
        *_warnings(seen),
        *_below(seen.run),
        *_worst_client(seen),
        *_classes(seen),
        *_strangers(seen),
        *_left_out(seen),
        *_promise(seen),
        _privacy(seen.run),
    ]
    return sorted(found, key=lambda one: not one.alarm)


def in_a_sentence(found: Sequence[Watch]) -> str:
    """The alarms; else that there is none."""
    alarms = list(dict.fromkeys(one.alarm for one in found if one.alarm))
    if alarms:
        return f"To watch: {'; '.join(alarms)}."
    return "No alarms."


def _warnings(seen: Seen) -> Iterator[Watch]:
    texts = [text for text in dict.fromkeys(seen.warnings) if text]
    for text in texts:
        yield Watch(
            "The run warns",
            f"{text[0].upper()}{text[1:]}.",
            f"{count(len(texts), 'warning')} of the run",
        )


def _below(run: Metrics) -> Iterator[Watch]:
    """Whether one model alone would do better."""
    name = judged_by(run)
    right, alone = run.accuracy[run.headline][name], run.accuracy.get("global", {}).get(name)
    if right is None or alone is None or alone - right < CLEARLY:
        return
    yield Watch(
        "One model alone does better",
        f"If all inputs were answered, {share(right)} would be right, and {share(alone)} by the "
        "federation's model alone.",
        f"the federation's model alone would be right more often ({share(alone)})",
    )


def _worst_client(seen: Seen) -> Iterator[Watch]:
    run, name = seen.run, judged_by(seen.run)
    known = [
        (right, client)
        for client in seen.clients
        if (right := client.accuracy.get(run.headline, {}).get(name)) is not None
    ]
    if len(known) < 2:
        return
    right, worst = min(known, key=lambda pair: pair[0])
    mean = sum(value for value, _ in known) / len(known)
    who = f"client {seen.origin.clients[worst.client]}"
    alarm = f"{who}, the worst off ({share(right)} right)" if right < mean - BEHIND else ""
    yield Watch(
        "The client that is worst off",
        f"{who[0].upper()}{who[1:]}: {share(right)} right, where clients have {share(mean)} on "
        f"average. It trained on {count(worst.rows, 'row')}.",
        alarm,
    )


def _classes(seen: Seen) -> Iterator[Watch]:
    by_class, names = seen.by_class, seen.origin.classes
    there = [] if by_class is None else [c for c, rows in enumerate(by_class.rows) if rows]
    if by_class is None or not there:
        return
    rarest = min(there, key=lambda c: by_class.rows[c])
    hardest = min(there, key=lambda c: by_class.recall[c] or 0.0)
    lost = [names[c] for c in there if (by_class.recall[c] or 0.0) < RARELY_FOUND]
    text = (
        f"The rarest class, {names[rarest]}, has {count(by_class.rows[rarest], 'test row')}, of "
        f"which {share(by_class.recall[rarest])} are found."
    )
    if hardest != rarest:
        text += f" Least found is {names[hardest]}: {share(by_class.recall[hardest])}."
    noun, whose = ("class", "its") if len(lost) == 1 else ("classes", "their")
    alarm = f"the {noun} {some(lost, 3)}, found in less than half of {whose} rows" if lost else ""
    yield Watch("Rare and hard classes", text, alarm)


def _strangers(seen: Seen) -> Iterator[Watch]:
    refused = seen.run.measures["stranger_share"]
    if not seen.has_gate:
        yield Watch(
            "Strangers",
            "Inputs like nothing that anybody trained on are answered like all others: this run "
            "has no gate (routing.strangers).",
            "strangers are answered",
        )
        return
    cost = f" None of these test inputs is one; the gate refuses {share(refused)} of them."
    yield Watch(
        "Strangers",
        "Inputs like nothing that anybody trained on are answered by nobody."
        + ("" if refused is None else cost),
    )


def _left_out(seen: Seen) -> Iterator[Watch]:
    out, rounds = left_out(seen.history), len(seen.history)
    if not rounds:
        return
    names = seen.origin.clients
    told = [
        f"{names[client] if client < len(names) else client} ({times} of {rounds})"
        for client, times in out
    ]
    yield Watch(
        "Clients left out",
        f"Rounds that went on without a client: {some(told)}."
        if told
        else "None: every client that was asked counts in every round.",
        f"{count(len(told), 'client')} left out of some rounds" if told else "",
    )


def _promise(seen: Seen) -> Iterator[Watch]:
    """What the run promises of its answers, and at which clients test rows bear it out."""
    run = seen.run
    risk, sure = run.measures["risk"], run.measures["sure"]
    if risk is None or sure is None:
        return
    told = [(client, client.promise) for client in seen.clients if client.promise]
    texts, broken, alarm = [], [], ""
    for side in ("own", "foreign"):
        tested = [pair for pair in told if pair[1][side]["wrong"] is not None]
        over = [pair for pair in tested if above(pair[1], side)]
        wrong = run.measures[f"wrong_{side}"]
        if wrong is not None:
            at = f", above the promise at {len(over)} of {count(len(tested), 'client')}"
            texts.append(
                f"{share(wrong)} of answers to {side} inputs are wrong" + at * bool(tested)
            )
            alarm = "more wrong answers on test rows than were promised" if wrong > risk else alarm
        broken += [c for c, promise in over if above(promise, side, BEYOND_CHANCE)]
    names = list(dict.fromkeys(seen.origin.clients[client.client] for client in broken))
    if names:
        texts.append(f"more than chance allows at {some(names)}")
        alarm = f"the promise is broken on test rows of {some(names, 3)}"
    yield Watch(
        "The promise",
        promise_in_words(risk, sure) + (f" On test rows: {'; '.join(texts)}." if texts else ""),
        alarm,
    )


def _privacy(run: Metrics) -> Watch:
    if run.privacy:
        epsilon = run.measures["epsilon"]
        hardly = f"ε = {epsilon:.3g} promises" if epsilon is not None else "noise that promises"
        weak = epsilon is None or epsilon > WEAK
        return Watch("Privacy", run.privacy, f"{hardly} next to nothing" if weak else "")
    return Watch(
        "Privacy",
        "Rows stay with their clients, but no noise was added: who can ask the models may learn of "
        "rows that they were trained on.",
    )
