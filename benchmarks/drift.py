"""Alarms of drift: false ones on inputs like the client's own, and how soon a shift is noticed.

    python benchmarks/drift.py [--runs 4] [--clients 5] [--out results/drift.json]

Each stream has a model and a calibration of its own: runs on the digits, each with another seed,
and some of the clients of each. Inputs are drawn with replacement from the client's own test rows,
in requests of 100, the share of own inputs being learned on the way. There are two kinds:

- as calibrated: the run's own calibration rows. Test rows are as few, so that streams are as far
  from what they were drawn from as calibration is;
- drawn anew: as many calibration rows are drawn from the very rows that the stream is drawn from.

A shift: after 10,000 such inputs a fifth is drawn from test rows of classes that the client has
not. The band of three standard errors around nominal shares, which went before, looks on as well.
"""

import argparse
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedpn
from fedpn.routing.bayes import RunningShare
from fedpn.routing.outcomes import Outcome, Source
from fedpn.routing.rule import Views
from fedpn.routing.standards import count_outcomes, foreignness
from fedpn.runs.config import resolve
from fedpn.runs.prepare import deal
from fedpn.service.drift import WINDOW, Seen, Watch
from fedpn.serving.predict import Predictor, load

INPUTS, REQUEST, BEFORE, PATIENCE, SHIFT = 100_000, 100, 10_000, 20_000, 0.2
Tree = dict[str, Any]


class Rows:
    """What a client's models say of some rows, once for all draws."""

    def __init__(self, predictor: Predictor, x: np.ndarray) -> None:
        rows = torch.from_numpy(x)
        self.predictor = predictor
        with torch.no_grad():
            self.views, self.strange = predictor.views(rows), predictor.strangers(rows)
        self.odds = predictor.bundle.rule.believe(self.views).odds

    def answer(self, draw: torch.Tensor, stream: RunningShare) -> Seen:
        strange = self.strange[draw]
        share = stream.learn(self.odds[draw][~strange])
        views: Views = self.views.take(draw)._replace(share=share)
        decision, _ = self.predictor.decide(views, strange)
        scores = foreignness(self.predictor.bundle.rule, decision, share)
        return Seen([Outcome(n) for n in decision.outcome.tolist()], scores.tolist())


def band_alarms(outcomes: list[Outcome], gate: float, abstain: float) -> bool:
    """The band that went before, over the last inputs."""
    rows = len(outcomes)
    strange = sum(o is Outcome.STRANGER for o in outcomes) / rows
    nobody = sum(o.source is Source.NOBODY for o in outcomes) / rows - strange

    def exceeds(share: float, expected: float) -> bool:
        spread = math.sqrt(max(expected * (1 - expected), 1 / rows) / rows)
        return share > min(expected + 3 * spread, 1.0)

    return exceeds(strange, gate) or exceeds(nobody, abstain)


def follow(rows: Rows, draws: Any, watch: Watch) -> Tree:
    """Sends a stream; tells after how many inputs an alarm came first, and how often the band's."""
    settings, stream = rows.predictor.bundle.about.routing, RunningShare()
    first: int | None = None
    names: list[str] = []
    last: list[Outcome] = []
    looks = [0, 0]
    seen = 0
    for draw in draws:
        found = rows.answer(draw, stream)
        seen += len(draw)
        watch.see(found)
        last = [*last, *found.outcomes][-WINDOW:]
        looks[0] += band_alarms(last, settings.strangers, settings.abstain)
        looks[1] += 1
        if first is None and watch.alarms():
            first, names = seen, watch.alarms()
    return {"first": first, "of": names, "band": looks[0] / looks[1]}


def shifted(rows: Rows, own: int, rng: np.random.Generator, watch: Watch) -> int | None:
    """Inputs from the shift until an alarm, if it came."""
    stream = RunningShare()
    for at in range(0, BEFORE + PATIENCE, REQUEST):
        draw = rng.integers(0, own, REQUEST)
        if at >= BEFORE:
            foreign = rng.integers(own, len(rows.odds), REQUEST)
            draw = np.where(rng.random(REQUEST) < SHIFT, foreign, draw)
        watch.see(rows.answer(torch.from_numpy(draw), stream))
        if at >= BEFORE and watch.alarms():
            return at + REQUEST - BEFORE
    return None


def one_stream(predictor: Predictor, own: np.ndarray, foreign: np.ndarray, seed: int) -> Tree:
    rows, rng = Rows(predictor, np.concatenate([own, foreign])), np.random.default_rng(seed)
    bundle, n = predictor.bundle, len(own)
    calibration = int(bundle.standards.seen[0])

    def draws() -> Any:
        for _ in range(INPUTS // REQUEST):
            yield torch.from_numpy(rng.integers(0, n, REQUEST))

    again = torch.from_numpy(rng.integers(0, n, calibration))
    seen = count_outcomes(
        bundle.rule, rows.views.take(again), bundle.standards, rows.strange[again]
    )
    standards = bundle.standards._replace(seen=seen)
    anew, calibrated = Watch(replace(bundle, standards=standards)), Watch(bundle)
    told = {
        "client": bundle.client,
        "calibration": [round(k, 2) for k in bundle.standards.seen.tolist()],
        "limits": {name: round(e.limit, 3) for name, e in calibrated.evidence.items()},
        "as calibrated": follow(rows, draws(), calibrated),
        "drawn anew": follow(rows, draws(), anew),
        "shift noticed after": shifted(rows, n, rng, Watch(bundle)),
    }
    print(json.dumps(told), flush=True)
    return told


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=4)
    options.add_argument("--clients", type=int, default=5)
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    streams = []
    with tempfile.TemporaryDirectory() as place:
        for seed in range(asked.runs):
            fedpn.run(Path(place) / str(seed), seed=seed)
            dataset, federation = deal(resolve([{"seed": seed}]))
            for client in range(0, 2 * asked.clients, 2):
                name = dataset.clients[client]
                predictor = load(Path(place) / str(seed), name)
                parts = (federation.ind(client), federation.ood(client))
                own, foreign = (dataset.x[rows] for rows in parts)
                streams.append(one_stream(predictor, own, foreign, 100 * seed + client))
    delays = [told["shift noticed after"] for told in streams]
    summary = {
        "streams": len(streams),
        "inputs": INPUTS,
        **{
            f"false alarms, {kind}": sum(told[kind]["first"] is not None for told in streams)
            for kind in ("as calibrated", "drawn anew")
        },
        "streams where the band alarms": sum(t["as calibrated"]["band"] > 0 for t in streams),
        "most of the time that it does": max(t["as calibrated"]["band"] for t in streams),
        "shifts noticed within 2,000 inputs": sum(d is not None and d <= 2000 for d in delays),
        "shifts not noticed within 20,000": sum(d is None for d in delays),
    }
    print(json.dumps(summary, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps({"summary": summary, "each": streams}, indent=1) + "\n")


if __name__ == "__main__":
    main()
