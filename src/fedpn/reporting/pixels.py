"""Images of a dataset as pixels that can be shown."""

import base64
import io

import numpy as np

from fedpn.data.dataset import Array


def as_rgb(image: Array) -> Array:  # [C, H, W] -> [H, W, 3]
    """Red, green and blue; one channel, or two, are shown in grey by their first."""
    channels = image[:3] if len(image) >= 3 else np.repeat(image[:1], 3, axis=0)
    return np.ascontiguousarray(channels.transpose(1, 2, 0))


def data_uri(image: Array) -> str:  # of [C, H, W]
    """A PNG picture as an address that holds the picture itself."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(as_rgb(image)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
