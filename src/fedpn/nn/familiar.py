"""A gate for strangers: is an input like anything that a federation has seen?

Closed form, from sums over rows alone, without an encoder and without training. Three rounds:

    state  = settle(Σ moments(x, y))   over training rows
    fitted = fit(Σ spread(s, y))       over held-out rows' s = statistics(x, state)
    limit  = threshold(Σ counts(d))    over the same rows' d = distance(s, fitted, own=y)

A row is a stranger where distance(statistics(x, state), fitted) > limit. Images are seen through
fixed views: coarse pixels, local energies by frequency (a 4×4 cosine basis, at two scales) and
histograms of tones; tables through their columns. Of each view, a row's energies inside and outside
of the principal subspace and its distance to the nearest class mean are taken, as logarithms: too
little is as strange as too much. Known images, if resampled or noisy, may be strangers as well.
"""

import functools
import math
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedpn.core.tracing import asinh, chunks, count_each, pool_to
from fedpn.core.trees import Params, zip_with
from fedpn.nn.patches import scaled

ROWS = 1024  # whose moments are taken at once
IMAGES = 32  # seen at once: temporaries stay in the processor's cache
PIXELS = 16  # coarse pixels a side; half as many for differences of colour
SIDE = 4  # of the cosine basis
CELLS = 3  # local energies are averaged over 3×3 parts of the image
BINS = 32  # of tones; half as many for each difference of colour
LEVEL = 4 / 255  # less than four steps of a byte counts as little
COLUMNS = 256  # wider tables are sketched: random columns are added up with random signs
COORDINATES = {"picture": 4, "texture": 0, "tone": 4, "columns": 4}  # principal ones, by view
ENERGY = 0.9  # of the principal subspace
RIDGE = 0.01  # of a view's correlations
FAR = 1e4  # standard deviations at most
SHRINK = 50.0  # rows' worth of the shared covariance in every class's own
FLOOR = 1e-3  # of covariances, relative to the shared variances
STEP, REACH = 0.2, 2000.0  # of tallies: distances from −REACH to REACH


def moments(x: Tensor, y: Tensor, classes: int, seed: int) -> Params:
    """Sums over training rows, uint8 [B, C, H, W] or float [B, F]; rows with NaN or ∞ are left out.

    Labels are of 0 … classes − 1; without any, zeros of a single class will do.
    """
    chunks = zip(torch.split(x, ROWS), torch.split(y, ROWS), strict=True)
    parts = (_moments(rows, labels, classes, seed) for rows, labels in chunks)
    return functools.reduce(functools.partial(zip_with, torch.add), parts)


def _moments(x: Tensor, y: Tensor, classes: int, seed: int) -> Params:
    finite = x.flatten(1).isfinite().all(1)
    x, y = x[finite], y[finite].long()
    total: Params = {"rows": torch.bincount(y, minlength=classes).double()}
    views = {name: view.double() for name, view in _views(x, seed).items() if name in COORDINATES}
    for name, v in views.items():
        total[f"{name}/total"] = v.new_zeros(classes, v.shape[1]).index_add_(0, y, v)
        total[f"{name}/outer"] = v.T @ v
    if x.ndim == 2:
        v = asinh(x.double())
        total |= {"each/total": v.sum(0), "each/square": v.square().sum(0)}
    return total


def settle(total: Params, seed: int) -> Params:
    """What everybody needs for statistics; `seed` as for the moments."""
    rows = total["rows"]
    n = rows.sum().clamp(min=1)
    state: Params = {"seed": torch.tensor(seed)}
    for name in (name for name in COORDINATES if f"{name}/total" in total):
        sums, outer = total[f"{name}/total"], total[f"{name}/outer"]
        mean = sums.sum(0) / n
        covariance = outer / n - torch.outer(mean, mean)
        scale = _scale(covariance.diagonal(), mean) + (0 if name == "columns" else LEVEL)
        seen = rows > 0
        means = (sums[seen] / rows[seen, None] - mean) / scale
        between = (means.T * rows[seen] / n) @ means
        within = covariance / torch.outer(scale, scale) - between
        values, vectors = (t.flip(-1) for t in torch.linalg.eigh(within))  # the greatest first
        values = values.clamp(min=0)
        inside = (values.cumsum(0) < ENERGY * values.sum()).sum() + 1
        whiten = vectors / (values + RIDGE).sqrt()
        state |= {f"{name}/mean": mean, f"{name}/scale": scale}  # float64: columns may hardly vary
        state |= {f"{name}/whiten": whiten.float(), f"{name}/centres": (means @ whiten).float()}
        state |= {f"{name}/inside": inside.clamp(max=len(values))}
    if "each/total" in total:
        mean = total["each/total"] / n
        variance = total["each/square"] / n - mean.square()
        state |= {"each/mean": mean, "each/scale": _scale(variance, mean)}
    return state


def _scale(variance: Tensor, mean: Tensor) -> Tensor:
    return variance.clamp(min=0).sqrt() + 1e-5 * (1 + mean.abs())  # > 0 for constant columns


def statistics(x: Tensor, state: Params) -> Tensor:  # -> [B, S]
    """A row's few numbers, finite for all finite rows; ±∞ counts as far out, NaN gives NaN."""
    return torch.cat([_statistics(part, state) for part in chunks(x, ROWS)])


def _statistics(x: Tensor, state: Params) -> Tensor:
    columns: list[Tensor] = []
    views = _views(x, int(state["seed"]))
    for name, view in ((name, view) for name, view in views.items() if name in COORDINATES):
        white = _standard(view, state, name).float() @ state[f"{name}/whiten"]
        inside, centres = int(state[f"{name}/inside"]), state[f"{name}/centres"]
        parts = [part for part in (white[:, :inside], white[:, inside:]) if part.shape[1]]
        nearest = (centres.square().sum(1) - 2 * white @ centres.T).argmin(1)  # ‖w − c‖² − ‖w‖²
        columns += [_log_energy(part) for part in (*parts, white - centres[nearest])]
        columns += [white[:, : COORDINATES[name]]]
    columns += [view for name, view in views.items() if name not in COORDINATES]
    if "each/mean" in state:
        z = _standard(asinh(x.double()), state, "each")
        columns += [_log_energy(z), z.abs().amax(1).log1p()]
    return torch.cat([c.float().reshape(x.shape[0], -1) for c in columns], 1)


def _standard(view: Tensor, state: Params, name: str) -> Tensor:
    return ((view.double() - state[f"{name}/mean"]) / state[f"{name}/scale"]).clamp(-FAR, FAR)


def _log_energy(z: Tensor) -> Tensor:
    return (z.square().mean(1) + 1 / z.shape[1]).log()  # a mean of few squares is often near 0


def _views(x: Tensor, seed: int) -> Params:
    if x.ndim == 2:
        return {"columns": _sketch(asinh(x.double()), seed)}
    parts = [_image_views(scaled(part)) for part in chunks(x, IMAGES)]
    return zip_with(lambda *views: torch.cat(views), *parts)


def _sketch(x: Tensor, seed: int) -> Tensor:
    if x.shape[1] <= COLUMNS:
        return x
    rng = torch.Generator().manual_seed(seed)
    place = torch.randint(COLUMNS, (x.shape[1],), generator=rng)
    sign = torch.randint(2, (x.shape[1],), generator=rng) * 2 - 1
    signed = x.clamp(-FAR, FAR) * sign  # or infinite rows would give ∞ − ∞
    return x.new_zeros(len(x), COLUMNS).index_add_(1, place, signed)


def _image_views(x: Tensor) -> Params:  # [B, C, H, W], from 0 to 1
    """Views whose moments are taken, by name, and "plain": numbers that are statistics already."""
    channels, height, width = x.shape[1:]
    # Brightness, then differences of colour: the cosine basis over channels.
    x = torch.einsum("dc,bchw->bdhw", _cosines(channels) / math.sqrt(channels), x)
    light, colour = x[:, :1], x[:, 1:]
    coarse = pool_to(light, (min(PIXELS, height), min(PIXELS, width)))
    tint = pool_to(colour, (PIXELS // 2, PIXELS // 2)) if channels > 1 else colour
    fine, whole = _energies(x, 2)
    rough, whole_rough = _energies(F.avg_pool2d(x, 2), 1)
    texture = [fine[:, 0], rough[:, 0], whole[:, 1:], whole_rough[:, 1:]]
    tints = [_histogram(2 * c + 0.5, BINS // 2) for c in colour.unbind(1)]
    k = torch.arange(SIDE).square()
    radius = (k[:, None] + k).flatten()[1:]  # of a frequency, squared
    low, high = (whole[:, 0, part].mean(1, keepdim=True) for part in (radius <= 2, radius > 8))
    mean = x.mean((2, 3), keepdim=True)
    contrast = ((x - mean).square().mean((2, 3)).sqrt() + LEVEL).log()
    plain = [mean[:, :1], (mean[:, 1:].abs() + LEVEL).log(), contrast, low, high]
    tone = [_histogram(light, BINS), *tints]
    views = {"picture": [coarse, tint], "texture": texture, "tone": tone, "plain": plain}
    return {name: torch.cat([t.flatten(1) for t in parts], 1) for name, parts in views.items()}


@functools.lru_cache
def _cosines(n: int) -> Tensor:
    """The orthonormal cosine basis, one function a row; the first is constant."""
    i = torch.arange(n)
    basis = math.sqrt(2 / n) * torch.cos(math.pi / n * (i + 0.5) * i[:, None])
    basis[0] /= math.sqrt(2)
    return basis


def _energies(x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Log energies by channel and frequency: of parts, [B, C, 15·9], and of whole images."""
    basis = _cosines(SIDE)
    kernels = torch.einsum("ai,bj->abij", basis, basis).reshape(-1, 1, SIDE, SIDE)[1:]
    energy = F.conv2d(x.flatten(0, 1)[:, None], kernels, stride=stride).square_()
    height, width = (min(CELLS, side) for side in energy.shape[2:])
    parts, whole = pool_to(energy, (height, width)), energy.mean((2, 3))
    logs = [(e + LEVEL**2).log() for e in (parts, whole)]
    local, overall = (e.reshape(*x.shape[:2], e.shape[1:].numel()) for e in logs)
    return local, overall


def _histogram(x: Tensor, bins: int) -> Tensor:  # [B, …] -> [B, bins]
    """Roots of the shares of pixels by value, from 0 to 1."""
    place = (x.flatten(1) * (bins * 255 / 256)).long().clamp(0, bins - 1)
    return (count_each(place, bins) / place.shape[1]).sqrt()


def spread(s: Tensor, y: Tensor, classes: int) -> Params:
    """Sums of held-out rows' statistics, by class; rows with NaN are left out."""
    s, y = s[s.isfinite().all(1)].double(), y[s.isfinite().all(1)].long()
    parts = [s[y == c] for c in range(classes)]
    total, outer = (torch.stack(t) for t in zip(*((p.sum(0), p.T @ p) for p in parts), strict=True))
    return {"rows": s.new_tensor([len(p) for p in parts]), "total": total, "outer": outer}


def fit(total: Params) -> Params:
    """A Gaussian for each class: mean, L⁻¹ of the covariance LLᵀ, and log|LLᵀ|."""
    rows, n = total["rows"], total["rows"].sum()
    mean = total["total"] / rows.clamp(min=1)[:, None]
    scatter = total["outer"] - torch.einsum("c,cs,ct->cst", rows, mean, mean)
    shared = scatter.sum(0) / (n - (rows > 0).sum()).clamp(min=1)
    floor = torch.diag(FLOOR * shared.diagonal().clamp(min=0) + 1e-6)
    covariance = (scatter + SHRINK * shared) / (rows + SHRINK)[:, None, None] + floor
    root = torch.linalg.cholesky(covariance)
    unit = torch.eye(len(shared), dtype=root.dtype).expand_as(root)
    inverse = torch.linalg.solve_triangular(root, unit, upper=False)
    volume = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
    return {"rows": rows, "mean": mean, "inverse": inverse, "volume": volume}


def distance(s: Tensor, fitted: Params, own: Tensor | None = None) -> Tensor:  # -> [B]
    """−2·log of the mixture's density: higher is stranger, ∞ for NaN.

    `own`: the labels of rows that the Gaussians were fitted on; each is measured as if it had been
    left out, or a limit from these rows would be too tight.
    """
    s, rows = s.double(), fitted["rows"]
    gaussians = zip(fitted["mean"], fitted["inverse"], strict=True)
    d = torch.stack([((s - m) @ i.T).square().sum(1) for m, i in gaussians], 1)  # [B, C]
    energy = d + fitted["volume"] - 2 * (rows / rows.sum()).log()
    if own is not None:
        # Without row r: scatter − β·rrᵀ, β = n/(n − 1), and the row is β·r from the mean.
        weight, beta = rows + SHRINK, rows / (rows - 1).clamp(min=0.5)
        left = (1 - beta * d / weight).clamp(min=1e-3)
        volume = fitted["volume"] + left.log() + s.shape[1] * (weight / (weight - 1)).log()
        share = (rows - 1).clamp(min=0) / rows.sum()
        without = (weight - 1) / weight * beta.square() * d / left + volume - 2 * share.log()
        energy = torch.where(own[:, None] == torch.arange(len(rows)), without, energy)
    return (-2 * torch.logsumexp(-energy / 2, 1)).nan_to_num(nan=math.inf, posinf=math.inf)


def counts(d: Tensor) -> Tensor:
    """A histogram of distances; those of clients add up."""
    place = ((d.clamp(-REACH, REACH) + REACH) / STEP).ceil().long()
    return torch.bincount(place, minlength=round(2 * REACH / STEP) + 1)


def threshold(tally: Tensor, keep: float = 0.95) -> float:
    """The least limit that lets the share `keep` of the counted rows pass; a finite number."""
    place = int((tally.cumsum(0) < keep * tally.sum()).sum())
    return place * STEP - REACH if place < len(tally) - 1 else sys.float_info.max
