"""The two operations in plain PyTorch: every device, dtype and shape."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolves without padding, rectifies, keeps the largest of each 2×2.

    [B, C, H, W], [O, C, k, k], [O] -> [B, O, (H−k+1)/2, (W−k+1)/2]
    """
    # Pooling first is the same, since both are monotone, and rectifies a quarter of the values.
    return F.max_pool2d(F.conv2d(x, weight, bias), 2).relu()


class Radial(NamedTuple):
    """A stack of radial layers; leading axes are free (rows, classes, clients)."""

    x0: Tensor  # [..., L, D]
    a: Tensor  # [..., L], before softplus
    s: Tensor  # [..., L], before softplus


def radial_log_prob(z: Tensor, flow: Radial) -> tuple[Tensor, Tensor]:
    """Returns log p(z) under the flow, twice: the second is blind to the flow's parameters.

    Both are equal; the first sends gradients to z and to the flow, the second to z alone (the
    stop-gradient of eq. 8, for the price of one pass). [..., D] -> [...], [...]
    """
    if torch.is_grad_enabled():
        shape = torch.broadcast_shapes(z.shape[:-1], flow.a.shape[:-1])  # type: ignore[no-untyped-call]
        z = z.expand(*shape, z.shape[-1])
        x0, a, s = (t.expand(*shape, *t.shape[n:]) for t, n in zip(flow, (-2, -1, -1), strict=True))
        seen, blind, *_ = _RadialLogProb.apply(z, x0, a, s)  # type: ignore[no-untyped-call]
        return seen, blind
    log_p = _forward(z, flow.x0, F.softplus(flow.a), F.softplus(flow.s))[0]
    return log_p, log_p


def _forward(z: Tensor, x0: Tensor, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Goes from data to base: z ← z + b·h·(z − x0), b = s − a, h = 1 / (a + r), r = |z − x0|.

    Returns log p(z), the radii [..., L] and the differences z − x0 of every layer.
    """
    dim, b = z.shape[-1], s - a
    ds, rs = [], []
    for layer in range(x0.shape[-2]):
        d = z - x0[..., layer, :]
        r = torch.linalg.vector_norm(d, dim=-1)
        z = torch.addcmul(z, (b[..., layer] / (a[..., layer] + r)).unsqueeze(-1), d)
        ds.append(d)
        rs.append(r)
    r = torch.stack(rs, -1)
    h = 1 / (a + r)
    # (D−1)·log(1 + bh) + log(1 + abh²), in a form that cannot reach log 0.
    log_det = (dim - 1) * ((r + s) * h).log() + ((r * (r + 2 * a) + a * s) * h * h).log()
    log_base = -0.5 * z.square().sum(-1) - 0.5 * dim * math.log(2 * math.pi)
    return log_base + log_det.sum(-1), r, [*ds, z]


def _backward(
    a: Tensor, s: Tensor, r: Tensor, ds: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the derivatives of log p by z, x0, a and s, in closed form."""
    *ds, z = ds
    dim, b, h = z.shape[-1], s - a, 1 / (a + r)
    bh = b * h
    stretch = (dim - 1) / ((r + s) * h)
    bend = 1 / ((r * (r + 2 * a) + a * s) * h * h)  # 1 / (1 + abh²)
    g = -z
    gs, dds = [], []
    pull = 2 * a * b * h * bend
    fall = -h * h / r.clamp(min=1e-12)  # at the very centre of a layer d = 0, and so is its pull
    for layer in range(len(ds) - 1, -1, -1):
        d = ds[layer]
        G = (g * d).sum(-1) + stretch[..., layer]
        along = fall[..., layer] * (b[..., layer] * G + pull[..., layer])
        dd = torch.addcmul(bh[..., layer, None] * g, along.unsqueeze(-1), d)
        g = g + dd
        gs.append(G)
        dds.append(dd)
    G = torch.stack(gs[::-1], -1)
    gb = h * G + a * h * h * bend
    ga = -h * h * (b * G + pull) + b * h * h * bend - gb
    return g, -torch.stack(dds[::-1], -2), ga, gb


class _RadialLogProb(torch.autograd.Function):
    """Computes log p and its derivatives in one go; the backward pass only scales them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, x0: Tensor, a: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        sa, ss = F.softplus(a), F.softplus(s)
        log_p, r, ds = _forward(z, x0, sa, ss)
        gz, gx, ga, gs = _backward(sa, ss, r, ds)
        return log_p, log_p.clone(), gz, gx, ga * a.sigmoid(), gs * s.sigmoid()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*output[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        gz, gx, ga, gs = ctx.saved_tensors
        seen, blind = (g.unsqueeze(-1) for g in grads[:2])
        return (seen + blind) * gz, seen.unsqueeze(-1) * gx, seen * ga, seen * gs
