"""Networks whose every part is a pure function of named parameters."""

import copy
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedpn.core.dirichlet import Posterior
from fedpn.core.trees import Params
from fedpn.nn.density import Density
from fedpn.nn.encoders import dense

EVIDENCE = 50.0  # log-evidence is kept within ±50


class Normalise(nn.Module):
    """Brings raw inputs (bytes of an image, columns of a table) to mean 0 and deviation 1."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        # Constants of the run, not parameters: they are neither trained nor averaged nor sent.
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("scale", 1 / std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.mean.dtype, copy=True).sub_(self.mean).mul_(self.scale)


class Classifier(nn.Module):
    """Encoder and softmax head: what the compared algorithms train."""

    def __init__(self, normalise: Normalise, encoder: nn.Module, dim: int, classes: int) -> None:
        super().__init__()
        self.normalise, self.encoder = normalise, encoder
        self.head = dense([dim, 3 * dim, classes])

    def forward(self, method: str, *args: Any) -> Any:
        """Lets `functional_call` reach every method."""
        return getattr(self, method)(*args)

    def embed(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, D]
        z: Tensor = self.encoder(self.normalise(x))
        return z

    def layers(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, F]
        """The activations of all layers of the encoder, side by side."""
        x = self.normalise(x)
        several = getattr(self.encoder, "layers", None)
        found = [self.encoder(x)] if several is None else several(x)
        return torch.cat([t.flatten(1) for t in found], 1)

    def columns(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, F]
        """The inputs themselves, normalised."""
        columns: Tensor = self.normalise(x).flatten(1)
        return columns

    def logits(self, z: Tensor) -> Tensor:  # [B, D] -> [B, K]
        logits: Tensor = self.head(z)
        return logits

    def classify(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, K]
        return self.logits(self.embed(x))

    def loss(self, loss: "Loss", z: Tensor, labels: Tensor) -> Tensor:
        return loss(self, z, labels)

    def input_loss(self, loss: "Loss", x: Tensor, labels: Tensor) -> Tensor:
        return loss(self, self.embed(x), labels)


class Evidence(NamedTuple):
    """A posterior of training rows, with the density's own log-likelihood beside it."""

    posterior: Posterior
    log_likelihood: Tensor  # [B]


class PosteriorNetwork(Classifier):
    """Adds a density of embeddings: α = 1 + p̃(z) · f(z) (eqs. 1, 2).

    `prior` holds p(c), the class frequencies that weigh the flows at inference.
    """

    prior: Tensor

    def __init__(
        self, normalise: Normalise, encoder: nn.Module, density: Density, dim: int, classes: int
    ) -> None:
        super().__init__(normalise, encoder, dim, classes)
        self.density, self.dim = density, dim
        self.register_buffer("prior", torch.full((classes,), 1 / classes))

    def posterior(self, z: Tensor) -> Posterior:
        """The posterior at inference: p(z) = Σ_c p(c) p(z | c)."""
        log_density = self._marginal(self.density.log_prob(z)[0])
        return self._posterior(z, log_density)

    def evidence(self, z: Tensor, labels: Tensor, label_flow: bool, repaired: bool) -> Evidence:
        """The posterior in training, from the true label's flow or from the marginal.

        Where `repaired`, the posterior sends no gradient to the density's parameters.
        """
        if label_flow:
            seen, blind = self.density.label_log_prob(z, labels)
        else:
            seen, blind = map(self._marginal, self.density.log_prob(z))
        return Evidence(self._posterior(z, blind if repaired else seen), seen)

    def _marginal(self, log_prob: Tensor) -> Tensor:  # [B, K] -> [B]
        if log_prob.shape[-1] == 1:
            return log_prob.squeeze(-1)
        return torch.logsumexp(log_prob + self.prior.log(), -1)

    def _posterior(self, z: Tensor, log_density: Tensor) -> Posterior:
        budget = log_density + 0.5 * math.log(4 * math.pi) * self.dim
        # The clamp bounds the value and lets the gradient through: what is added is zero.
        log_evidence = budget.clamp(-EVIDENCE, EVIDENCE).detach() + (budget - budget.detach())
        probs = self.logits(z).softmax(-1)
        alpha = 1 + log_evidence.exp().unsqueeze(-1) * probs
        return Posterior(alpha, log_evidence, log_density, probs)


def call(network: nn.Module, params: Params, method: str, *args: Any) -> Any:
    """Calls one method of a network with the given parameters and buffers."""
    return functional_call(_mine(network), params, (method, *args))


_copies = threading.local()


def _mine(network: nn.Module) -> nn.Module:
    """This thread's copy of a network, which shares its tensors.

    `functional_call` lends parameters to the modules while it runs, so no two threads may call one.
    """
    if threading.current_thread() is threading.main_thread():
        return network
    if not hasattr(_copies, "by_network"):
        _copies.by_network = WeakKeyDictionary()
    mine: nn.Module | None = _copies.by_network.get(network)
    if mine is None:
        tensors = [*network.parameters(), *network.buffers()]
        mine = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
        _copies.by_network[network] = mine
    return mine


def parameters(network: nn.Module) -> Params:
    """All that a network learns or counts, detached: `Params`."""
    return {name: t.detach().clone() for name, t in network.state_dict().items()}


Loss = Callable[[Any, Tensor, Tensor], Tensor]  # (network, z, labels) -> a number
