"""A network and a loss, told as a `Task`: all that an algorithm may know of them."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from fedpn.core.dirichlet import Posterior
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params
from fedpn.nn.posterior import Classifier, Loss, call

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm)


class Model(NamedTuple):
    """A network as pure functions of its parameters.

    `task` works on inputs; `top` on embeddings, for the stages that leave the encoder alone.
    """

    network: Classifier
    loss: Loss
    task: Task
    top: Task

    def to(self, device: torch.device) -> "Model":
        """The same model elsewhere."""
        return make_model(self.network.to(device), self.loss)

    def embed(self, params: Params, x: Tensor) -> Tensor:
        z: Tensor = call(self.network, params, "embed", x)
        return z

    def layers(self, params: Params, x: Tensor) -> Tensor:
        """The activations of all layers of the encoder, side by side."""
        found: Tensor = call(self.network, params, "layers", x)
        return found

    def columns(self, x: Tensor) -> Tensor:
        """The inputs themselves, normalised."""
        found: Tensor = call(self.network, {}, "columns", x)
        return found

    def posterior(self, params: Params, z: Tensor) -> Posterior:
        posterior: Posterior = call(self.network, params, "posterior", z)
        return posterior

    def logits(self, params: Params, z: Tensor) -> Tensor:
        logits: Tensor = call(self.network, params, "logits", z)
        return logits


class _Counter(TorchFunctionMode):
    """Counts the multiplications and additions of convolutions and matrix products."""

    total = 0

    def __torch_function__(
        self, call: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = call(*args, **(kwargs or {}))
        name = getattr(call, "__name__", "")
        if name.startswith("conv"):
            self.total += 2 * args[1].numel() * result.numel() // max(args[1].shape[0], 1)
        elif name in PRODUCTS:
            self.total += 2 * args[0].numel() * result.shape[-1]
        return result


PRODUCTS = ("linear", "matmul", "mm", "bmm")


@torch.no_grad()
def operations(network: Classifier, shape: Sequence[int]) -> int:
    """Count the multiplications and additions by which a network classifies one input.

    In float64, for which there are no native kernels, whose operations nobody counts.
    """
    alike = copy.deepcopy(network).double()
    with _Counter() as counter:
        alike("classify", torch.zeros(1, *shape, device=next(alike.parameters()).device))
    return int(counter.total)


def make_model(network: Classifier, loss: Loss) -> Model:
    """Tells what belongs to the head and to normalisation, by module and never by a substring."""
    learner = copy.deepcopy(network).train()
    network = network.eval()
    entries = network.state_dict()
    encoder = {f"encoder.{name}" for name in network.encoder.state_dict()}
    prior = entries.keys() & {"prior"}
    own_head = {n for n in entries if n.startswith("own_head.")}
    norms = {
        f"{prefix}.{name}"
        for prefix, module in network.named_modules()
        if isinstance(module, NORMS)
        for name in module.state_dict()
    }
    # Parameters of integers have no gradient.
    learned = {n for n, parameter in network.named_parameters() if parameter.is_floating_point()}
    buffers = entries.keys() - learned
    counted = buffers - prior

    def loss_of_embeddings(params: Params, batch: Batch) -> tuple[Tensor, Params]:
        return call(learner, params, "loss", loss, batch.x, batch.y), {}

    def loss_of_inputs(params: Params, batch: Batch) -> tuple[Tensor, Params]:
        # Statistics are updated in place, on clones, so that the function stays pure; each
        # client's have to be its own before, though all begin with the server's.
        none = 0 * batch.progress
        new = {name: params[name] + none.to(params[name]) for name in counted}
        value = call(learner, params | new, "input_loss", loss, batch.x, batch.y)
        return value, new

    def task(
        loss: Callable[[Params, Batch], tuple[Tensor, Params]],
        logits: Callable[[Params, Tensor], Tensor],
    ) -> Task:
        return Task(
            loss=loss,
            logits=logits,
            head_names=frozenset(entries.keys() - encoder - prior),
            norm_names=frozenset(norms),
            encoder_names=frozenset(encoder),
            buffer_names=frozenset(buffers),
            prior_names=frozenset(prior),
            own_head_names=frozenset(own_head),
        )

    def logits(params: Params, x: Tensor) -> Tensor:
        result: Tensor = call(network, params, "classify", x)
        return result

    def top_logits(params: Params, z: Tensor) -> Tensor:
        result: Tensor = call(network, params, "logits", z)
        return result

    return Model(network, loss, task(loss_of_inputs, logits), task(loss_of_embeddings, top_logits))
