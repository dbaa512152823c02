"""φ(x): what a closed-form head sees of an input, built from sums alone.

Blocks, each where the settings ask for it: pooled patches of an image; a table's columns and the
encoder's layers, standardised; random Fourier features of these (Rahimi & Recht, 2007). And 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpn.core import seeds, tracing
from fedpn.core.trees import Params, Slots
from fedpn.federated.heads.base import Seen
from fedpn.nn import patches
from fedpn.nn.patches import PatchMoments

CHUNK = 256  # rows at once


@dataclass(frozen=True)
class Features:
    """The blocks of φ and their sizes."""

    blocks: tuple[str, ...]  # of inputs, patches, columns, encoder
    filters: int
    fourier: int
    seed: int
    clip: float = 0.0  # to which length φ is cut, without its 1; 0: not at all

    def of(self, x: Tensor) -> set[str]:
        """The blocks for inputs such as these: `inputs` are patches of images, columns of tables.

        >>> sorted(Features(("inputs", "encoder"), 1, 1, 0).of(torch.zeros(2, 5)))
        ['columns', 'encoder']
        """
        inputs = "patches" if x.dim() == 4 else "columns"
        return {inputs if block == "inputs" else block for block in self.blocks}

    def sums(self, seen: Seen) -> Slots:
        """What must be known of all rows before φ can be told; sums over rows."""
        found: Slots = {}
        blocks = self.of(seen.x)
        if "patches" in blocks:
            found["patches"] = dict(patches.moments(seen.x)._asdict())
        if blocks - {"patches"}:
            raw = self._raw(seen, blocks).double()
            found["dense"] = {"total": raw.sum(0), "squares": raw.square().sum(0)}
        return found

    def settle(self, total: Slots, rows: float) -> Params:
        """Draws filters and frequencies by the seed, in the metric of the sums."""
        rng = torch.Generator().manual_seed(seeds.torch_seed("features", self.seed))
        state: Params = {}
        if "patches" in total:
            moments = PatchMoments(**total["patches"])
            state["filters"], state["shift"] = patches.draw_filters(moments, self.filters, rng)
        if "dense" in total:
            mean = total["dense"]["total"] / rows
            variance = (total["dense"]["squares"] / rows - mean.square()).clamp(min=0)
            constant = variance <= 1e-12 * mean.square().clamp(min=1e-12)
            scale = torch.where(constant, 0, variance.clamp(min=1e-300).rsqrt())
            state |= {"mean": mean.float(), "scale": scale.float()}
            # Standardised rows lie √(2·F) apart, in the mean of squares: the kernel's width.
            width = (2 * (~constant).sum().clamp(min=1)).double().sqrt()
            shape = (len(mean), self.fourier)
            drawn = torch.randn(shape, generator=rng, dtype=torch.float64) / width
            phase = 2 * torch.pi * torch.rand(self.fourier, generator=rng, dtype=torch.float64)
            state |= {"frequencies": drawn.float(), "phases": phase.float()}
        return state

    def __call__(self, seen: Seen, state: Params) -> Tensor:  # [B, F]
        """φ of some rows, in float32."""
        found, blocks = [], self.of(seen.x)
        if "patches" in blocks:
            found.append(patches.pooled(seen.x, state["filters"], state["shift"]))
        if blocks - {"patches"}:
            raw = (self._raw(seen, blocks) - state["mean"]) * state["scale"]
            waves = (raw @ state["frequencies"] + state["phases"]).cos()
            found += [raw, waves]
        ones = torch.ones(seen.x.shape[0], 1, device=seen.x.device)
        phi = torch.cat(found, 1)
        if self.clip:
            phi = phi * (self.clip / phi.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
        return torch.cat([phi, ones], 1)

    def _raw(self, seen: Seen, blocks: set[str]) -> Tensor:
        found = []
        if "columns" in blocks:
            found.append(seen.model.columns(seen.x))
        if "encoder" in blocks:
            found.append(seen.model.layers(seen.params, seen.x))
        return torch.cat(found, 1)


def chunks(seen: Seen) -> list[Seen]:
    """Rows in parts that fit a processor's cache."""
    parts = zip(tracing.chunks(seen.x, CHUNK), tracing.chunks(seen.z, CHUNK), strict=True)
    return [Seen(seen.model, seen.params, x, z) for x, z in parts]
