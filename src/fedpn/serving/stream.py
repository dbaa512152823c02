"""Answers to more inputs than fit into memory: part by part, the share of own ones as it goes."""

import math
from collections.abc import Iterable, Iterator

import torch

from fedpn.routing.bayes import Bayes, RunningShare
from fedpn.serving.conform import conform
from fedpn.serving.inputs import Inputs
from fedpn.serving.predict import Answer, Predictor, teaches


def answer_parts(
    predictor: Predictor, parts: Iterable[Inputs], own_share: float | None = None
) -> Iterator[tuple[Inputs, list[Answer]]]:
    """Answers each part; of one part alone, as `predictor(rows)` would."""
    running = RunningShare(window=math.inf)
    rule, about = predictor.bundle.rule, predictor.bundle.about
    prepared = about.recipe is not None
    for part in parts:
        x = torch.from_numpy(conform(part.rows, about.blueprint.shape, prepared))
        views, strange = predictor.views(x), predictor.strangers(x)
        known = teaches(x, strange)
        share = own_share
        if share is None and isinstance(rule, Bayes):
            share = running.learn(rule.believe(views).odds[known])
        predictor.own_share = predictor.find_share(views, share, known)
        decision, sound = predictor.decide(views._replace(share=predictor.own_share), strange)
        yield part, predictor.tell(decision, sound)
