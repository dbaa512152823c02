"""The files that pages speak of, small; and runs of them, each done once."""

import re
import shutil
from functools import cache

import numpy as np
from PIL import Image

import fedpn

# What makes any run quick. It is far from trained, but whole.
FEW = {"clients": 4, "data__limit": 600}  # of data that are named; the offices are few already
SMALL = {
    "rounds": 1,
    "data__show": "no",
    "train__steps": 1,
    "train__batch": 8,
    "train__late": 1,
    "method__adapt_epochs": 0,
    "method__adapt_steps": 2,
    "model__layers": 2,
    "head__filters": 4,
    "head__fourier": 20,
}
SITES = ("St. Anna", "Charité", "Nordsee")
WARDS = ("surgery", "heart", "children")


def small(settings):
    """The settings that make a run with these settings quick.

    >>> small({"dataset": "mnist"})["clients"], "clients" in small({})
    (4, False)
    """
    return FEW | SMALL if settings.get("dataset") else SMALL


def typed(settings):
    """Settings as they are typed.

    >>> typed({"data__limit": 600})
    ['--set', 'data.limit=600']
    """
    return [word for k, v in settings.items() for word in ("--set", f"{k.replace('__', '.')}={v}")]


@cache
def _digits():
    data = fedpn.open_dataset("digits")
    return data.x[:, 0], data.y


def patients(path, count=600, seed=0):
    """A table with gaps, wards and three hospitals."""
    rng = np.random.default_rng(seed)
    lines = ["patient,age,pulse,pressure,ward,diagnosis,hospital"]
    for number in range(count):
        sick = rng.random() < 0.5
        numbers = rng.normal((60, 75, 125), (12, 8, 12)) + sick * np.array([8, 14, 12])
        cells = ["" if rng.random() < 0.04 else f"{value:.0f}" for value in numbers]
        row = [f"P{number}", *cells, str(rng.choice(WARDS)), "sick" if sick else "well"]
        lines.append(",".join([*row, str(rng.choice(SITES))]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def digits(path, first=0, count=60, labels=True):
    x, y = _digits()
    part = slice(first, first + count)
    np.savez(path, images=x[part], **({"labels": y[part]} if labels else {}))


def scans(folder):
    """Pictures in a folder for each class."""
    x, y = _digits()
    for name, label in (("normal", 0), ("pneumonia", 1)):
        (folder / name).mkdir(parents=True)
        for number, picture in enumerate(x[y == label][:120]):
            Image.fromarray(picture).save(folder / name / f"{number}.png")


def named_set(path):
    """A named set in the form of the real one."""
    x, y = _digits()
    np.savez(
        path,
        train_images=x[:1200],
        train_labels=y[:1200],
        test_images=x[1200:],
        test_labels=y[1200:],
    )


FILES = {
    "clinic.csv": patients,
    "table.csv": lambda path: patients(path, seed=1),
    "new-patients.csv": lambda path: patients(path, 20, seed=2),
    "patients.csv": lambda path: patients(path, 20, seed=3),
    "labelled.csv": lambda path: patients(path, 200, seed=4),
    "new-rows.csv": lambda path: patients(path, 200, seed=5),
    "held-out.csv": lambda path: patients(path, 60, seed=6),
    "new.npz": lambda path: digits(path, 1000, labels=False),
    "oslo.npz": lambda path: digits(path, 1200, 200),
    "scans": scans,
}
TABLE = {"data__label": "diagnosis", "data__client": "hospital", "data__ignore": ["patient"]}
RUNS = {
    "runs/digits": {"dataset": "offices", "algorithm": "analytic"},
    "runs/wards": {"dataset": "clinic.csv", "algorithm": "analytic", **TABLE},
    "runs/offices-fedavg-0": {"algorithm": "fedavg"},
    "runs/a": {"algorithm": "fedavg"},
    "runs/b": {"algorithm": "ditto"},
}


def furnish(place, text, run):
    """Makes the files and runs that a text names and that are not there."""
    named = [name for name in (*FILES, *RUNS) if re.search(rf"(?<![\w/-]){name}(?![\w-])", text)]
    for name in (name for name in named if not (place / name).exists()):
        if name in FILES:
            FILES[name](place / name)
        else:
            furnish(place, RUNS[name].get("dataset", ""), run)
            run(place / name, **RUNS[name])


class Kept:
    """Runs that were done before under the same settings are copied."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}

    def __call__(self, key, out, do):
        if key in self.known:
            shutil.copytree(self.known[key], out, dirs_exist_ok=True)
            return
        do()
        if out.exists():
            self.known[key] = self.folder / str(len(self.known))
            shutil.copytree(out, self.known[key])
