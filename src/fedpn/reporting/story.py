"""What a run came to, in plain words: a sentence for the terminal, a paragraph for the page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fedpn.core.plain import plain
from fedpn.core.summary import summarise
from fedpn.reporting.finished import ClientMetrics, Metrics, Origin
from fedpn.reporting.tables import UNKNOWN, judged_by, number, percent, share
from fedpn.reporting.words import count

ALONE = {"local": "the own model alone", "global": "the federation's alone"}


def brought_together(runs: Sequence[Metrics]) -> Metrics:
    """Runs of several seeds as one of their means."""
    ways = [who for who in runs[0].accuracy if all(who in run.accuracy for run in runs)]
    return replace(
        runs[0],
        accuracy=summarise([{who: run.accuracy[who] for who in ways} for run in runs]),
        measures=summarise([run.measures for run in runs]),
    )


def trained(runs: Sequence[Metrics], origin: Origin) -> str:
    """Who learned what, and how."""
    run = runs[0]
    method = run.algorithm.rpartition(":")[2]  # of one's own, without its file
    rounds = f"in {count(run.rounds, 'round')}" if run.rounds else "without rounds"
    who = "One client" if run.clients == 1 else f"{run.clients} clients"
    seeds = f", {len(runs)} times over" if len(runs) > 1 else ""
    return f"{who} learned with {method} on {origin.dataset}, {rounds}{seeds}."


# Streams of inputs in plain words: the set of test rows, and the answers of Bayes' rule to it.
FEW = 30  # rows below which a client is no example
STREAMS = {
    "a client's own inputs": ("ind", "own_stream"),
    "other clients' inputs": ("ood", "foreign_stream"),
}
ANSWERERS = {"personal": "own model", "local": "own model", "global": "federation"}


def right_answers(run: Metrics) -> list[list[str]]:
    """Return how often each answerer is right, stream by stream; the headline answers together."""
    alone = {who: name for who, name in ANSWERERS.items() if who in run.accuracy}
    switches = run.headline not in alone
    rows = [["right answers, %", *alone.values(), *["together"] * switches]]
    for name, (rows_of, stream) in STREAMS.items():
        right = [run.accuracy[who][rows_of] for who in alone]
        if switches:
            together = run.measures[stream] if run.headline == "bayes" else None
            right.append(run.accuracy[run.headline][rows_of] if together is None else together)
        if any(value is not None for value in right):
            rows.append([name, *map(percent, right)])
    refused = run.measures["strangers_refused"]
    if switches and refused is not None:  # a model alone answers whatever it is shown
        rows.append(["strangers, refused", *[percent(0.0)] * len(alone), percent(refused)])
    return rows


def closing(
    run: Metrics, clients: Sequence[ClientMetrics], origin: Origin, sets: float | None
) -> Iterator[str]:
    """Yield who gains most, who answers, what is refused, and what is promised."""
    found = run.measures
    yield from _most_gained(run, clients, origin)
    coverage, own, shared = (found[f] for f in ("coverage", "local_share", "global_share"))
    if coverage is not None and own is not None and shared is not None:
        mixed = "Of as many own as other inputs, " if judged_by(run) == "mix" else ""
        text = f"{mixed}{share(own)} are answered as the client's own"
        text += f", {share(shared)} as the federation's" if shared else ""
        yield f"{text[0].upper()}{text[1:]}, {share(1 - coverage)} by nobody."
    if found["strangers_refused"] is not None:
        yield (
            "Strangers are test images with shuffled pixels; of the real ones "
            f"{share(found['stranger_share'])} are refused as such."
        )
    yield from _promises(run, sets)


def _most_gained(run: Metrics, clients: Sequence[ClientMetrics], origin: Origin) -> Iterator[str]:
    """Yield the client whose own inputs the federation's model alone answers worst."""
    rows = [c for c in clients if c.rows >= FEW and _own(c, "global") is not None]
    if run.headline not in ("bayes", "switch") or len(rows) < 2:
        return
    one = max(rows, key=lambda c: (_own(c, run.headline) or 0) - (_own(c, "global") or 0))
    alone, together = _own(one, "global"), _own(one, run.headline)
    if alone is not None and together is not None and together > alone:
        name = plain(origin.clients[one.client])
        yield (
            f"Client {name} gains most: of its inputs the federation answers {share(alone)} "
            f"rightly, both together {share(together)}."
        )


def _own(client: ClientMetrics, who: str) -> float | None:
    return client.accuracy[who]["ind"] if who in client.accuracy else None


def _promises(run: Metrics, sets: float | None) -> Iterator[str]:
    """Yield what the run promises, beside what its test rows measure."""
    found = run.measures
    if found["risk"] is not None:
        yield (
            f"Promised: at most {share(found['risk'])} of answers are wrong, with "
            f"{share(found['sure'])} confidence. Measured: {_both(found, 'wrong')}; "
            f"answered: {_both(found, 'answered')}."
        )
    if sets and found["missed_own"] is not None:
        yield (
            f"Promised: the set of classes in question holds the true one for at least "
            f"{share(1 - sets)} of inputs. Missed: {_both(found, 'missed')}; a set has "
            f"{number(found['set_own'], 2)} classes on average."
        )
    elif found["risk"] is None:
        yield "No limit on wrong answers is promised; --risk 0.1 promises at most 10 %."


def _both(found: Mapping[str, float | None], name: str) -> str:
    """Return a measure of own inputs, and of others' where there are any."""
    own, foreign = share(found[f"{name}_own"]), share(found[f"{name}_foreign"])
    return f"{own} of own inputs" + (f", {foreign} of others'" if foreign != UNKNOWN else "")


def meaning(run: Metrics) -> str:
    """The table in one sentence: who answers how much, how rightly, and what that is worth."""
    sentence = "; ".join([*_who_answers(run), *_worth(run)])
    if sentence and judged_by(run) == "mix":
        sentence = f"where half of the inputs are foreign to a client, {sentence}"
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _who_answers(run: Metrics) -> Iterator[str]:
    """Each who answers, with its share of inputs and how often it is right."""
    found = run.measures
    if found["coverage"] is None:
        return
    own, shared = found["local_share"], found["global_share"]
    if own:
        yield _first(run, share(own), found["local_right"])
    if shared:
        yield _second(run, share(shared), found["global_right"])
    nobody = 1 - found["coverage"]
    if not own and not shared:
        yield "nobody answers any input"
    elif nobody > 0:
        yield f"nobody answers the other {share(nobody)}"


def _first(run: Metrics, part: str, right: float | None) -> str:
    """What is answered as the client's own; a model without a switch answers whatever comes."""
    mixed = judged_by(run) == "mix"
    someone = "the client" if run.clients == 1 else "a client"
    who, of = ("its", "") if mixed else (f"{someone}'s", " of own inputs")
    chosen = "local" in run.accuracy and (mixed or bool(run.measures["global_share"]))
    if run.headline == "global":
        whole = f"the one model of all clients answers {part}{of}"
    elif run.headline == "bayes" and chosen:
        return _taken(f"{who} own", f"{part}{of}", right)
    elif chosen:
        whole = f"{who} own model answers what it knows ({part}{of})"
    else:
        whole = f"{who} own model answers {part}{of}"
    return whole if right is None else f"{whole}, {share(right)} right"


def _second(run: Metrics, part: str, right: float | None) -> str:
    """What is answered as foreign to the client."""
    if run.headline == "bayes":
        return _taken("others'", part, right)
    what = f"what it does not ({part})" if run.measures["local_share"] else part
    whole = f"the federation's model answers {what}"
    return whole if right is None else f"{whole}, {share(right)} right"


def _taken(whose: str, part: str, right: float | None) -> str:
    """Bayes' rule has no two answerers: both models have a say, by whose an input seems to be."""
    rightly = "" if right is None else f" {share(right)} right"
    return f"what is taken for {whose} ({part}) is answered{rightly}"


def _worth(run: Metrics) -> Iterator[str]:
    """How right all answers would be, beside each model alone."""
    name = judged_by(run)
    right = run.accuracy[run.headline][name]
    if right is None:
        return
    others = {who: run.accuracy[who][name] for who in ALONE if who in run.accuracy}
    beside = " and ".join(
        f"{share(value)} by {ALONE[who]}"
        for who, value in others.items()
        if who != run.headline and value is not None
    )
    told = f"if all were answered, {share(right)} would be right"
    if run.measures["coverage"] == 1:
        told = f"in all {share(right)} are right" if beside else ""
    yield from [f"{told}, against {beside}" if beside else told] if told else []


def gains(run: Metrics, clients: Sequence[ClientMetrics]) -> list[str]:
    """What the method is worth: to how many clients, and how near to the best there could be."""
    name, told = judged_by(run), []
    for who, words in ALONE.items():
        pairs = [(c.accuracy.get(run.headline), c.accuracy.get(who)) for c in clients]
        known = [
            (mine[name], theirs[name])
            for mine, theirs in pairs
            if mine and theirs and mine[name] is not None and theirs[name] is not None
        ]
        if known and who != run.headline:
            better = sum(mine > theirs for mine, theirs in known)  # type: ignore[operator]
            worse = sum(mine < theirs for mine, theirs in known)  # type: ignore[operator]
            told.append(
                f"Against {words} it is better at {better} of {count(len(known), 'client')}, "
                f"worse at {worse}."
            )
    closed = run.measures["gap_closed"]
    if closed is not None:
        told.append(
            f"Of what the oracle adds to the better one of both models, it gains {share(closed)}."
            if closed >= 0
            else "It is below the better one of both models alone."
        )
    return told
