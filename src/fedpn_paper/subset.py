"""Some rows of a named set, in an archive of their own: for a quick look."""

from pathlib import Path

import numpy as np

from fedpn.data.sources import datasets, npz
from fedpn_paper.cells import SUBSET


def subset(name: str, rows: int, folder: Path) -> Path:
    """Writes the first `rows` rows of a shuffled set, and returns the archive."""
    path = folder / f"{name}{SUBSET}.npz"
    if not path.exists():
        whole = datasets.load(name)
        chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:rows])
        folder.mkdir(parents=True, exist_ok=True)
        npz.write(path, {"train_images": whole.x[chosen], "train_labels": whole.y[chosen]})
    return path
