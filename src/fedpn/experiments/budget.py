"""What each dataset is trained with, the same for every algorithm: TOML files beside the code."""

import tomllib
from importlib import resources
from typing import Any


def budget(dataset: str) -> dict[str, Any]:
    """The settings of a dataset; without a file, those of the paper, which are the defaults.

    >>> budget("nothing-of-the-kind")
    {}
    """
    file = resources.files("fedpn.experiments") / "budgets" / f"{dataset}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
