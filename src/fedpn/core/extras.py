"""Packages that only some work needs, and the extra of fedpn that brings each."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from fedpn.core.errors import UserError

EXTRAS = {
    "pooch": "data",
    "matplotlib": "plots",
    "pyarrow": "parquet",
    "pydicom": "dicom",
    **dict.fromkeys(("flwr", "cryptography", "httpx"), "flower"),
    **dict.fromkeys(("onnx", "onnxruntime"), "onnx"),
    **dict.fromkeys(("fastapi", "uvicorn", "sqlalchemy", "python_multipart"), "serve"),
    "tensorboardX": "tensorboard",
    "mlflow": "mlflow",
}


def hint(module: str | None) -> str:
    """Return how to install the package of a module; "" where no extra brings it.

    >>> hint("matplotlib.axes")
    "pip install 'fedpn[plots]'"
    """
    extra = EXTRAS.get((module or "").partition(".")[0])
    return f"pip install 'fedpn[{extra}]'" if extra else ""


def is_here(module: str) -> bool:
    """Return whether a module of an extra can be imported."""
    try:
        return find_spec(module) is not None
    except ValueError:  # its name is taken by what is no module
        return False


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Turn a package that is missing into a sentence that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not hint(error.name):
            raise
        raise UserError(f"{what} needs {error.name}: {hint(error.name)}") from None
