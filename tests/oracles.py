"""Federated algorithms as people write them: a module, an optimiser and a loop per client.

Each oracle follows its paper and shares nothing with the package, so that tests can compare.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

State = dict[str, Tensor]  # a state_dict
Buffers = dict[str, State]  # an optimiser's, by the name of the parameter


class Setting(NamedTuple):
    network: nn.Module
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]  # (network, z, y) -> the mean over rows
    x: Tensor
    y: Tensor
    rows: list[np.ndarray]  # by client
    plans: list[list[Tensor]]  # by round and client: [steps, batch]
    joined: list[list[int]]  # by round
    adapt_plans: list[Tensor]  # by client: [steps, batch]
    head: frozenset[str]
    norm: frozenset[str]


class Outcome(NamedTuple):
    shared: State | None
    personal: list[State]  # by client


class Step(NamedTuple):
    """What a local step may look at."""

    network: nn.Module
    server: State  # as the round began
    x: Tensor
    y: Tensor
    client: int
    round: int
    progress: float  # of the client's steps in this round, from 0


class Run(NamedTuple):
    server: State
    clients: list[State]  # the server's entries with each client's own
    starts: list[State]  # the server's state as each round began


def fedavg(s: Setting, h: Any) -> Outcome:
    """McMahan et al., 2017: w ← Σ_k (n_k / n) · w_k."""
    return everyones(s, federate(s, h, plain(s)).server)


def local(s: Setting, h: Any) -> Outcome:
    """Every client alone: w_k ← w_k − η ∇f_k(w_k)."""
    return Outcome(None, federate(s, h, plain(s), personal=everything(s)).clients)


def fedper(s: Setting, h: Any) -> Outcome:
    """Arivazhagan et al., 2019: the body is averaged, each client keeps its own head."""
    return Outcome(None, federate(s, h, plain(s), personal=s.head).clients)


def fedbn(s: Setting, h: Any) -> Outcome:
    """Li et al., 2021: normalisation layers and their statistics stay with the client."""
    return Outcome(None, federate(s, h, plain(s), personal=s.norm).clients)


def fedrep(s: Setting, h: Any) -> Outcome:
    """Collins et al., 2021: h_k ← argmin f_k(h_k, φ) by some steps, then φ by the others."""
    body = everything(s) - s.head

    def gradients(t: Step) -> None:
        fixed = body if t.progress < h.head_share else s.head
        before = snapshot(t.network)
        loss_of(s, t.network, t.x, t.y).backward()
        freeze(t.network, fixed)
        load(t.network, {n: before[n] for n in fixed})

    return Outcome(None, federate(s, h, gradients, personal=s.head).clients)


def fedbabu(s: Setting, h: Any) -> Outcome:
    """Oh et al., 2022: the body is trained under the first, random head; then clients fine-tune."""

    def gradients(t: Step) -> None:
        loss_of(s, t.network, t.x, t.y).backward()
        freeze(t.network, s.head)

    # Nobody moves the head, so that a mean could only blur its last digits.
    server = federate(s, h, gradients, personal=s.head).clients[0]
    return Outcome(server, [fine_tune(s, h, server, plan) for plan in s.adapt_plans])


def fine_tune(s: Setting, h: Any, state: State, plan: Tensor) -> State:
    """FedBABU's personal stage, over the head or over all parameters."""
    network = build(s, state)
    network.train(h.part == "all")
    moving = [p for n, p in network.named_parameters() if h.part == "all" or n in s.head]
    optimizer = torch.optim.SGD(moving, h.adapt_lr, h.momentum, weight_decay=h.weight_decay)
    for index in plan:
        optimizer.zero_grad()
        loss_of(s, network, s.x[index], s.y[index]).backward()
        optimizer.step()
    return state | {n: p.detach().clone() for n, p in network.named_parameters()}


def perfedavg(s: Setting, h: Any) -> Outcome:
    """Fallah et al., 2020: min_w Σ_k f_k(w − a ∇f_k(w)), clients take one more step each.

    First-order: g = ∇f(w − a ∇f(w; D); D'). Hessian-free: g − a · Hg, where
    Hg = (∇f(w + δg; D'') − ∇f(w − δg; D'')) / 2δ.
    """
    parts = {"first-order": 2, "hessian-free": 3}[h.mode]

    def gradients(t: Step) -> None:
        pairs = list(zip(t.x.tensor_split(parts), t.y.tensor_split(parts), strict=True))
        inner = gradient_beside(s, t.network, pairs[0])
        outer = gradient_beside(s, t.network, pairs[1], inner, -h.inner_lr)
        if h.mode == "hessian-free":
            above = gradient_beside(s, t.network, pairs[2], outer, h.delta)
            below = gradient_beside(s, t.network, pairs[2], outer, -h.delta)
            product = [(a - b) / (2 * h.delta) for a, b in zip(above, below, strict=True)]
            outer = [g - h.inner_lr * hg for g, hg in zip(outer, product, strict=True)]
        for p, g in zip(t.network.parameters(), outer, strict=True):
            p.grad = g

    def personalise(server: State, index: Tensor) -> State:
        network = build(s, server)
        loss_of(s, network, s.x[index], s.y[index]).backward()
        torch.optim.SGD(network.parameters(), h.inner_lr).step()
        return server | {n: p.detach().clone() for n, p in network.named_parameters()}

    server = federate(s, h, gradients).server
    return Outcome(server, [personalise(server, plan[0]) for plan in s.adapt_plans])


def gradient_beside(
    s: Setting,
    network: nn.Module,
    rows: tuple[Tensor, Tensor],
    direction: Iterable[Tensor] = (),
    distance: float = 0.0,
) -> list[Tensor]:
    """The gradient at w + distance · direction; the network is left at w."""
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    with torch.no_grad():
        for p, d in zip(network.parameters(), direction, strict=False):
            p.add_(distance * d)
    network.zero_grad()
    loss_of(s, network, *rows).backward()
    grads = [p.grad for p in network.parameters()]
    network.zero_grad()
    load(network, before)
    return grads


def fedprox(s: Setting, h: Any) -> Outcome:
    """Li et al., 2020: min f_k(w) + μ/2 · ‖w − w_global‖²."""

    def gradients(t: Step) -> None:
        proximal = h.mu / 2 * squared_distance(t.network, t.server)
        (loss_of(s, t.network, t.x, t.y) + proximal).backward()

    return everyones(s, federate(s, h, gradients).server)


def fedavgm(s: Setting, h: Any) -> Outcome:
    """Hsu et al., 2019: u ← β u + (Σ_k (n_k / n) · w_k − w); w ← w + u."""
    velocity = {n: torch.zeros_like(p) for n, p in s.network.named_parameters()}

    def aggregate(server: State, mean: State) -> State:
        for n in velocity:
            velocity[n] = h.server_momentum * velocity[n] + (mean[n] - server[n])
        return mean | {n: server[n] + velocity[n] for n in velocity}

    return everyones(s, federate(s, h, plain(s), aggregate=aggregate).server)


def scaffold(s: Setting, h: Any) -> Outcome:
    """Karimireddy et al., 2020, option II: y ← y − η (∇f_k(y) − c_k + c).

    Then c_k⁺ = c_k − c + (x − y) / (K η), and c ← c + |S| / N · mean(c_k⁺ − c_k).
    """
    server = first(s)
    zero = {n: torch.zeros_like(p) for n, p in s.network.named_parameters()}
    control, own = zero, [zero for _ in s.rows]
    for joined, plans in zip(s.joined, s.plans, strict=True):
        uploads, changes = [], []
        for c in joined:
            network = build(s, server)
            optimizer = torch.optim.SGD(network.parameters(), h.lr, weight_decay=h.weight_decay)
            for index in plans[c]:
                optimizer.zero_grad()
                loss_of(s, network, s.x[index], s.y[index]).backward()
                for n, p in network.named_parameters():
                    p.grad += control[n] - own[c][n]
                optimizer.step()
            y, scale = snapshot(network), len(plans[c]) * h.lr
            new = {n: own[c][n] - control[n] + (server[n] - y[n]) / scale for n in zero}
            uploads.append(y)
            changes.append({n: new[n] - own[c][n] for n in zero})
            own[c] = new
        weights, share = weights_of(s, joined), len(joined) / len(s.rows)
        change = mean_of(changes, weights)
        control = {n: control[n] + share * change[n] for n in zero}
        server = mean_of(uploads, weights)
    return everyones(s, server)


def ditto(s: Setting, h: Any) -> Outcome:
    """Li et al., 2021: min_v f_k(v) + λ/2 · ‖v − w‖², beside FedAvg's w."""
    w = federate(s, h, plain(s))

    def gradients(t: Step) -> None:
        pull = h.tether / 2 * squared_distance(t.network, w.starts[t.round])
        (loss_of(s, t.network, t.x, t.y) + pull).backward()

    v = federate(s, h, gradients, personal=everything(s))
    return Outcome(w.server, v.clients)


def apfl(s: Setting, h: Any) -> Outcome:
    """Deng et al., 2020: clients predict with v̄ = α v + (1 − α) w, for networks without buffers.

    v ← v − η α ∇f(v̄); α ← α − η_α ⟨v − w, ∇f(v̄)⟩.
    """
    own = [build(s, first(s)) for _ in s.rows]
    optimizers = [optimizer_of(h, v) for v in own]
    alpha = [h.alpha for _ in s.rows]

    def gradients(t: Step) -> None:
        c, v = t.client, own[t.client]
        if t.progress == 0 and h.optimizer_state == "reset":
            optimizers[c] = optimizer_of(h, v)
        loss_of(s, t.network, t.x, t.y).backward()
        mixed = build(s, mix(snapshot(v), snapshot(t.network), alpha[c]))
        loss_of(s, mixed, t.x, t.y).backward()
        slope = 0.0
        for p, w, m in zip(v.parameters(), t.network.parameters(), mixed.parameters(), strict=True):
            slope += ((p - w).detach() * m.grad).sum().item()
            p.grad = alpha[c] * m.grad
        optimizers[c].step()
        alpha[c] = min(max(alpha[c] - h.alpha_lr * slope, 0.0), 1.0)

    server = federate(s, h, gradients).server
    return Outcome(server, [mix(snapshot(v), server, a) for v, a in zip(own, alpha, strict=True)])


def pfedme(s: Setting, h: Any) -> Outcome:
    """Dinh et al., 2020: θ ≈ argmin f_k(θ) + λ/2 · ‖θ − w_k‖²; w_k ← w_k − η λ (w_k − θ).

    The server takes w ← (1 − β) w + β Σ_k (n_k / n) · w_k.
    """
    theta = [build(s, first(s)) for _ in s.rows]
    trained = {n for n, _ in s.network.named_parameters()}

    def gradients(t: Step) -> None:
        mine = theta[t.client]
        if t.progress == 0:
            load(mine, snapshot(t.network))
        anchor = snapshot(t.network)
        optimizer = torch.optim.SGD(mine.parameters(), h.inner_lr)
        for _ in range(h.inner_steps):
            optimizer.zero_grad()
            pull = h.tether / 2 * squared_distance(mine, anchor)
            (loss_of(s, mine, t.x, t.y) + pull).backward()
            optimizer.step()
        for w, p in zip(t.network.parameters(), mine.parameters(), strict=True):
            w.grad = h.tether * (w - p).detach()
        load(t.network, {n: b for n, b in snapshot(mine).items() if n not in trained})

    def aggregate(server: State, mean: State) -> State:
        return mean | {n: (1 - h.mix) * server[n] + h.mix * mean[n] for n in trained}

    server = federate(s, h, gradients, aggregate=aggregate).server
    return Outcome(server, [snapshot(network) for network in theta])


def fedrod(s: Setting, h: Any) -> Outcome:
    """Chen & Chao, 2022: a balanced generic head, and a personal one on top of its logits.

    CE(g(z) + log p_k(y)) + CE(sg[g(z)] + h_k(sg[z])), where sg stops gradients.
    """
    personal = frozenset(n for n in everything(s) if n.startswith("own_head."))

    def gradients(t: Step) -> None:
        z = t.network.embed(t.x)
        generic = t.network.head(z)
        own = generic.detach() + t.network.own_head(z.detach())
        counts = torch.bincount(s.y[s.rows[t.client]], minlength=generic.shape[1])
        prior = counts.to(generic.dtype) / counts.sum()
        loss = F.cross_entropy(generic + prior.log(), t.y) + F.cross_entropy(own, t.y)
        loss.backward()

    run = federate(s, h, gradients, personal=personal)
    return Outcome({n: t for n, t in run.server.items() if n not in personal}, run.clients)


def federate(
    s: Setting,
    h: Any,
    gradients: Callable[[Step], None],
    personal: frozenset[str] = frozenset(),
    aggregate: Callable[[State, State], State] = lambda server, mean: mean,
) -> Run:
    """Rounds of averaging, in which personal entries never leave their client.

    `gradients` fills `.grad`; a parameter whose gradient is None does not move.
    """
    server, own, starts = first(s), [first(s) for _ in s.rows], []
    keeper = Keeper(s, h, personal)
    for r, joined in enumerate(s.joined):
        starts.append(server)
        buffers = {}
        for c in joined:
            network = build(s, with_own(server, own[c], personal))
            optimizer = optimizer_of(h, network)
            keeper.hand_out(c, network, optimizer)
            for i, index in enumerate(s.plans[r][c]):
                optimizer.zero_grad()
                progress = i / len(s.plans[r][c])
                gradients(Step(network, server, s.x[index], s.y[index], c, r, progress))
                optimizer.step()
            own[c] = snapshot(network)
            buffers[c] = buffers_of(network, optimizer)
        weights = weights_of(s, joined)
        keeper.take_back(buffers, weights)
        server = aggregate(server, mean_of([own[c] for c in joined], weights))
    return Run(server, [with_own(server, state, personal) for state in own], starts)


class Keeper:
    """Holds optimiser buffers between rounds: with the server, with the clients, or not at all."""

    def __init__(self, s: Setting, h: Any, personal: frozenset[str]) -> None:
        self.policy, self.personal = h.optimizer_state, personal
        self.server = buffers_of(s.network, optimizer_of(h, s.network))
        self.clients = [self.server for _ in s.rows]

    def hand_out(self, client: int, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if self.policy == "reset":
            return
        for n, p in network.named_parameters():
            stays = self.policy == "keep" or n in self.personal
            source = self.clients[client] if stays else self.server
            optimizer.state[p] = {key: b.clone() for key, b in source[n].items()}

    def take_back(self, buffers: dict[int, Buffers], weights: list[float]) -> None:
        for c, own in buffers.items():
            self.clients[c] = own
        uploads = list(buffers.values())
        self.server = {n: mean_of([u[n] for u in uploads], weights) for n in self.server}


def optimizer_of(h: Any, network: nn.Module) -> torch.optim.Optimizer:
    """Builds a fresh optimiser, its buffers already there as zeros."""
    parameters = list(network.parameters())
    if h.optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, h.lr, weight_decay=h.weight_decay)
        keys = ["exp_avg", "exp_avg_sq"]
    else:
        optimizer = torch.optim.SGD(parameters, h.lr, h.momentum, weight_decay=h.weight_decay)
        keys = ["momentum_buffer"]
    for p in parameters:
        optimizer.state[p] = {key: torch.zeros_like(p) for key in keys}
        if h.optimizer == "adam":
            # The mean of unequal steps is no integer: torch's float32 would round it.
            optimizer.state[p]["step"] = torch.zeros((), dtype=torch.float64)
    return optimizer


def buffers_of(network: nn.Module, optimizer: torch.optim.Optimizer) -> Buffers:
    return {
        n: {key: b.detach().clone() for key, b in optimizer.state[p].items()}
        for n, p in network.named_parameters()
    }


def plain(s: Setting) -> Callable[[Step], None]:
    return lambda t: loss_of(s, t.network, t.x, t.y).backward()


def loss_of(s: Setting, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return s.loss(network, network.embed(x), y)


def squared_distance(network: nn.Module, anchor: State) -> Tensor:
    return sum(((p - anchor[n]) ** 2).sum() for n, p in network.named_parameters())


def freeze(network: nn.Module, names: frozenset[str]) -> None:
    for n, p in network.named_parameters():
        if n in names:
            p.grad = None


def build(s: Setting, state: State) -> nn.Module:
    network = copy.deepcopy(s.network).train()
    network.zero_grad()
    load(network, state)
    return network


@torch.no_grad()
def load(network: nn.Module, state: State) -> None:
    """Copies the named entries: torch's own loader asks every BatchNorm for a counter."""
    entries = network.state_dict()
    for n, t in state.items():
        entries[n].copy_(t)


def first(s: Setting) -> State:
    return snapshot(s.network)


def snapshot(network: nn.Module) -> State:
    return {n: t.detach().clone() for n, t in network.state_dict().items()}


def everything(s: Setting) -> frozenset[str]:
    return frozenset(s.network.state_dict())


def everyones(s: Setting, server: State) -> Outcome:
    return Outcome(server, [server for _ in s.rows])


def with_own(server: State, own: State, personal: frozenset[str]) -> State:
    return server | {n: own[n] for n in personal}


def mix(a: State, b: State, share: float) -> State:
    return {n: share * a[n] + (1 - share) * b[n] for n in a}


def weights_of(s: Setting, joined: list[int]) -> list[float]:
    total = sum(len(s.rows[c]) for c in joined)
    return [len(s.rows[c]) / total for c in joined]


def mean_of(states: list[State], weights: list[float]) -> State:
    return {n: sum(w * t[n] for w, t in zip(weights, states, strict=True)) for n in states[0]}


ORACLES: dict[str, Callable[[Setting, Any], Outcome]] = {
    "fedavg": fedavg,
    "local": local,
    "fedper": fedper,
    "fedrep": fedrep,
    "fedbabu": fedbabu,
    "fedbn": fedbn,
    "perfedavg": perfedavg,
    "apfl": apfl,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
    "scaffold": scaffold,
    "ditto": ditto,
    "pfedme": pfedme,
    "fedrod": fedrod,
}
