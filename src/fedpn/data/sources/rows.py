"""Arrays as people save them -> images as bytes, or features as floats."""

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array, channels_first


def as_rows(values: Array, what: str) -> tuple[Array, str]:
    """Brings rows to uint8 [N, C, H, W] or float32 [N, F]; the remark tells what that took.

    >>> as_rows(np.zeros((2, 8, 8), np.uint8), "x")[0].shape
    (2, 1, 8, 8)
    >>> as_rows(np.array([[1, 2], [3, 4]]), "x")[0].dtype
    dtype('float32')
    """
    if values.dtype.kind not in "iufb":
        raise UserError(f"{what} has the type {values.dtype}; images are bytes, features numbers")
    if values.ndim not in (2, 3, 4) or 0 in values.shape[1:]:
        raise UserError(
            f"{what} has the shape {values.shape}; images are [N, H, W] or [N, H, W, C], "
            "features [N, F]"
        )
    if values.ndim == 2:
        return as_features(values, what), ""
    pixels, remark = _as_bytes(values, what)
    images = channels_first(pixels)
    if images.shape[1] > 4:
        raise UserError(
            f"{what} has the shape {values.shape}; images have 1 to 4 channels, as the second axis "
            "or the last"
        )
    return images, remark


def as_features(values: Array, what: str) -> Array:
    """Refuses what is no number, and names where it is."""
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is named below
        features = values.astype(np.float32)
    refuse_nonfinite(features, what, values)
    return features


def refuse_nonfinite(values: Array, what: str, given: Array | None = None) -> None:
    """Names the first value that is missing or infinite, as it was given."""
    flat = values.reshape(len(values), -1)
    bad = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    if len(bad):
        row = int(bad[0])
        column = int(np.flatnonzero(~np.isfinite(flat[row]))[0])
        place = tuple(map(int, np.unravel_index(column, values.shape[1:])))
        value = (values if given is None else given)[(row, *place)]
        raise UserError(
            f"row {row} of {what} holds {value} in "
            + (f"column {column}" if len(place) == 1 else f"the pixel {place}")
            + ", which is missing or infinite as a 32-bit float; fill it in or drop the row"
        )


def _as_bytes(values: Array, what: str) -> tuple[Array, str]:
    if values.dtype == np.uint8:
        return values, ""
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * 255, f"{what}: false and true became 0 and 255"
    if values.dtype.kind == "f":
        refuse_nonfinite(values, what)
    low, high = (values.min(), values.max()) if values.size else (0, 0)
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return np.round(values * 255).astype(np.uint8), f"{what}: 0 to 1 became bytes, 0 to 255"
    if low >= 0 and high <= 255 and (values == np.round(values)).all():
        return values.astype(np.uint8), ""
    raise UserError(
        f"{what} has {values.ndim} axes, as images have, but holds values from {low:g} to "
        f"{high:g}; pixels are bytes from 0 to 255 or floats from 0 to 1. Bring images there; of "
        f"series and other numbers give {what}.reshape(len({what}), -1), which a network of your "
        "own (model.encoder) may shape back"
    )
