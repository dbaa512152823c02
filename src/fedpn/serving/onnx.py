"""One client's answers as an ONNX graph: from a batch of inputs to who answers what."""

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedpn.core.dirichlet import Posterior
from fedpn.core.extras import needed
from fedpn.core.trees import Params
from fedpn.federated.observer import OwnSight, opinion_of
from fedpn.nn.posterior import PosteriorNetwork
from fedpn.routing.opinion import of_logits
from fedpn.routing.rule import EVEN, Views
from fedpn.serving.predict import Predictor

OUTPUTS = ("probabilities", "label", "outcome", "epistemic", "aleatoric", "total")
FILE = "model.onnx"
OPSET = 18


class Fixed:
    """A network whose parameters are its own: exporters cannot see through borrowed ones."""

    def __init__(self, predictor: Predictor, params: Params) -> None:
        self.network = copy.deepcopy(predictor.model.network).eval().requires_grad_(False)
        self.network.load_state_dict(self.network.state_dict() | params)

    def embed(self, _: Params, x: Tensor) -> Tensor:
        return self.network.embed(x)

    def layers(self, _: Params, x: Tensor) -> Tensor:
        return self.network.layers(x)

    def columns(self, x: Tensor) -> Tensor:
        return self.network.columns(x)

    def logits(self, _: Params, z: Tensor) -> Tensor:
        return self.network.logits(z)

    def posterior(self, _: Params, z: Tensor) -> Posterior:
        assert isinstance(self.network, PosteriorNetwork)
        return self.network.posterior(z)


class Graph(nn.Module):
    """What a predictor does with inputs, in operations on tensors alone; at an even share."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        bundle = predictor.bundle
        self.predictor = predictor
        self.common: Any = Fixed(predictor, bundle.shared or bundle.predictor)
        self.mine: Any = Fixed(predictor, bundle.predictor)
        names = predictor.model.task.encoder_names
        self.has_own_encoder = bool(names & bundle.own.keys())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        decision, _ = self.predictor.decide(self.views(x), self.predictor.strangers(x))
        kinds = (decision.label, decision.outcome)
        scores = (decision.epistemic, decision.aleatoric, decision.total)
        return (decision.probs.float(), *kinds, *(score.float() for score in scores))

    def views(self, x: Tensor) -> Views:
        """As `Predictor.views`, without its stores."""
        p, b = self.predictor, self.predictor.bundle
        z = self.common.embed({}, x)
        sight = OwnSight(None, None)
        if p.head is not None and b.shared is not None:
            seen = p.head.look(self.common, b.shared, b.head, x, z)
            shared = of_logits(p.head.logits(seen, b.head), z)
            if b.own_head:
                logits = p.head.logits(seen, b.own_head) if "matrix" in b.own_head else None
                sight = OwnSight(logits, p.head.likeness(seen, b.own_head))
        else:
            shared = opinion_of(self.common, {}, z)
        own = shared
        if b.own:
            mine = self.mine.embed({}, x) if self.has_own_encoder else z
            own = opinion_of(self.mine, {}, mine)
        if b.rule is None:
            return Views(own, own, own.total)
        score = own.total if p.router is None else p.router.score(own, shared, b.router)
        return Views(own, shared, score, EVEN, *sight)


def write_onnx(predictor: Predictor, path: Path) -> None:
    """Writes the graph; its first axis is that of the batch."""
    with needed("--onnx"):
        import onnx  # noqa: F401
    shape = predictor.bundle.blueprint.shape
    kind = torch.uint8 if len(shape) == 3 else torch.float32
    example = torch.ones(4, *shape).to(kind)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constants that are taken as such: they are
        torch.onnx.export(
            Graph(predictor).eval(),
            (example,),
            str(path),
            input_names=["inputs"],
            output_names=list(OUTPUTS),
            dynamic_axes={name: {0: "batch"} for name in ("inputs", *OUTPUTS)},
            opset_version=OPSET,
            dynamo=False,
        )
