"""Models of one client that differ in the order and the number of their columns; and their swap."""

import json
import shutil

import numpy as np

import fedpn
from fedpn.serving.export import export

COLUMNS = {
    "first": ("weight", "sodium"),
    "turned": ("sodium", "weight"),
    "wide": ("age", "sodium", "weight"),
}
ROWS = [
    {"weight": 2.0, "sodium": -2.0, "age": 0.0},
    {"weight": -2.0, "sodium": 2.0, "age": 0.0},
]
LABELS = ["heavy", "salty"]  # where columns are taken for each other, each is the other


def make(place):
    """A folder for each of `COLUMNS`, with models of client Oslo."""
    rng = np.random.default_rng(0)
    rows = [
        {"weight": sign * 2 + a, "sodium": -sign * 2 + b, "age": c}
        for i, (a, b, c) in enumerate(rng.normal(scale=0.5, size=(240, 3)))
        for sign in [1 if i % 2 == 0 else -1]
    ]
    for name, columns in COLUMNS.items():
        lines = [",".join((*columns, "label", "client"))]
        for i, row in enumerate(rows):
            values = [f"{row[column]:.3f}" for column in columns]
            lines.append(",".join([*values, LABELS[i % 2], ("Oslo", "Bergen")[i // 2 % 2]]))
        (place / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
        options = {"algorithm": "analytic", "head__fourier": 20}
        fedpn.run(place / f"run-{name}", dataset=str(place / f"{name}.csv"), **options)
        export(place / f"run-{name}", "Oslo", place / name)
    return {name: place / name for name in COLUMNS}


def swap(folder, live, rng=None):
    """Puts a folder's files in place of those that are served, one by one, in any order."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    for file in files if rng is None else rng.permutation(files):
        shutil.copyfile(file, live / file.name)


def question(columns, own_share=0.5, **more):
    rows = [{name: row[name] for name in columns} for row in ROWS]
    return {"client": "Oslo", "inputs": rows, "own_share": own_share, **more}


def as_json(*arguments, **more):
    return json.dumps(question(*arguments, **more)).encode()
