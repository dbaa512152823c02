"""An encoder with all that people's own have: nn.BatchNorm2d, and buffers of every type."""

import torch
from torch import Tensor, nn

LARGE = 2**60 + 1  # a constant that no float holds


class Plain(nn.Module):
    """As most people write one."""

    def __init__(self, shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(shape[0], 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.Flatten(), nn.LazyLinear(dim)),
        )
        self.body.eval()(torch.zeros(1, *shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Counting(Plain):
    """Counts rows, marks pixels that were ever bright, keeps a table; all in buffers."""

    def __init__(self, shape: tuple[int, ...], dim: int) -> None:
        super().__init__(shape, dim)
        self.register_buffer("rows", torch.tensor(LARGE))
        self.register_buffer("bright", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("table", torch.arange(dim, dtype=torch.uint8))
        self.register_buffer("scale16", torch.full((3,), 300.0, dtype=torch.float16))
        self.register_buffer("brain16", torch.full((3,), 300.0, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.rows += len(x)
            self.bright |= (x > 0.5).any(0)
            self.scale16 += 0.25
        return super().forward(x)[:, self.table.long()] * torch.where(self.bright.any(), 1.0, 0.5)
