"""What a run came to, in plain words: a sentence for the terminal, a paragraph for the page."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedpn.core.summary import summarise
from fedpn.reporting.finished import ClientMetrics, Metrics, Origin
from fedpn.reporting.tables import judged_by, share
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
