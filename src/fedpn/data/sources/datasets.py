"""Named sets: a name -> pooled rows."""

import difflib
import functools
import gzip
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array, Dataset
from fedpn.data.sources import archive, npz
from fedpn.data.sources.class_names import DIGITS
from fedpn.data.sources.download import fetch
from fedpn.data.sources.guard import some
from fedpn.data.sources.offices import offices
from fedpn.data.sources.publishers import PUBLISHERS, Publisher

BUILT_IN = ("offices", "digits")  # the first is what `fedpn run` plays by default
BY_HAND = {  # sets of which no publisher tells a checksum, and how one has them
    "femnist": "make it by LEAF's data/femnist/preprocess.sh (github.com/TalwalkarLab/leaf) and "
    "give the path of the folder that holds its train and test, as in --dataset femnist/data",
}


def load(name: str, url: str | None = None) -> Dataset:
    """Finds a named set in `$FEDPN_DATA`, then in the cache, then at its publisher.

    `url` is another place that holds the publisher's files.

    >>> digits = load("digits")
    >>> len(digits), digits.shape, digits.classes[:3]
    (1797, (1, 28, 28), ('0', '1', '2'))
    """
    if name in BUILT_IN:
        return offices(_digits()) if name == "offices" else _digits()
    path = get(name, url)
    content = archive.read(path)
    publisher = PUBLISHERS.get(name)
    classes = content.classes
    if publisher:
        if len(classes) > len(publisher.classes):
            raise UserError(
                f"{path} holds {len(classes)} classes and {name!r} has {len(publisher.classes)}; "
                "give the file another name"
            )
        classes = publisher.classes[: len(classes)]
    return Dataset(
        name,
        content.x,
        content.y,
        classes,
        content.client,
        content.clients,
        note=note_of(publisher, content.rows),
        remarks=content.remarks,
    )


def get(name: str, url: str | None = None) -> Path:
    """Makes sure that a set is at hand, and returns its file."""
    path = find(name)
    if path:
        return path
    if name not in PUBLISHERS:
        raise unknown(name)
    publisher = PUBLISHERS[name]
    if url:
        publisher = replace(publisher, url=url.rstrip("/"))
    target = cache() / f"{name}.npz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as own:
        files = fetch(name, publisher, Path(own), [place / name for place in places()])
        npz.write(target, _whole(name, publisher, publisher.read(*files)))
    return target


def find(name: str) -> Path | None:
    """The file of a set that is at hand."""
    paths = (path for place in places() for path in place.glob("*.npz"))
    return next((path for path in paths if path.stem == name and path.is_file()), None)


def names() -> list[str]:
    """Every name that `load` takes: the known ones first, then what else is at hand."""
    paths = (path for place in places() for path in place.glob("[!.]*.npz"))
    found = {path.stem for path in paths if path.is_file()}
    known = [*BUILT_IN, *PUBLISHERS]
    return known + sorted(found - set(known))


def places() -> list[Path]:
    """Where sets are looked for, in this order."""
    given = os.environ.get("FEDPN_DATA")
    return ([Path(given).expanduser()] if given else []) + [cache()]


def cache() -> Path:
    """Where downloaded sets are kept."""
    from platformdirs import user_cache_path

    given = os.environ.get("FEDPN_CACHE")
    return Path(given).expanduser() if given else user_cache_path("fedpn")


def note_of(publisher: Publisher | None, rows: dict[str, int]) -> str:
    """What must be said beside every figure."""
    if publisher is None:
        return ""
    return "; ".join(filter(None, (publisher.shortfall(rows), publisher.leak)))


def unknown(name: str) -> UserError:
    """Tells what the user may have meant."""
    if name.lower() in BY_HAND:
        return UserError(f"{name!r} is never downloaded; {BY_HAND[name.lower()]}")
    near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.5)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return UserError(
        f"there is no dataset {name!r}; {meant}`fedpn data list` shows all names, "
        "and a path to your own data needs a '/' or an ending (.npz, .csv, .parquet)"
    )


def _whole(name: str, publisher: Publisher, arrays: dict[str, Array]) -> dict[str, Array]:
    """Refuses files that are well formed but hold something else."""
    for part, rows in publisher.rows.items():
        found = len(arrays.get(f"{part}_labels", ()))
        if found != rows or len(arrays.get(f"{part}_images", ())) != rows:
            raise UserError(
                f"the files of {name!r} hold {found} {part} rows and should hold {rows}; "
                f"fetch them again from {publisher.url}"
            )
    classes = tuple(arrays.pop("classes", publisher.classes))
    if classes != publisher.classes:
        raise UserError(
            f"the files of {name!r} name the classes {some(classes)} and should name "
            f"{some(publisher.classes)}; fetch them again from {publisher.url}"
        )
    return arrays


def _digits() -> Dataset:
    """The 1797 digits that ship with fedpn, as a set that is the caller's own."""
    images, labels = _scaled_digits()
    return Dataset("digits", images.copy(), labels.copy(), DIGITS)


@functools.cache
def _scaled_digits() -> tuple[Array, Array]:  # [N, 1, 28, 28], [N]
    """8×8 pixels of 17 shades, scaled to 28×28: once, for that takes longer than much else."""
    from PIL import Image

    shades, labels = small_digits()
    pixels = np.clip(shades * 16, 0, 255).astype(np.uint8)
    size, method = (28, 28), Image.Resampling.BILINEAR
    images = np.stack([np.asarray(Image.fromarray(p).resize(size, method)) for p in pixels])
    return images[:, None], labels


def small_digits() -> tuple[Array, Array]:  # [N, 8, 8], [N]
    """Return the digits as they are, in 17 shades, and what they show."""
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    return table[:, :64].reshape(-1, 8, 8), table[:, 64]
