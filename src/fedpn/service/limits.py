"""What a service takes at most, and how long it waits: set once, when it starts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on what callers may ask for."""

    body: int = 32 * 2**20  # bytes of a request
    rows: int = 4096  # inputs of a request
    waiting: int = 16_384  # inputs of all requests that are not answered yet
    batch: int = 256  # inputs that are answered at once
    linger: float = 0.004  # seconds to wait for other callers' inputs
    seconds: float = 30.0  # for a request to be answered in
    pixels: int = 64_000_000  # of a picture
