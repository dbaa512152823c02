"""Where an extra is not installed, what needs it says which one it is."""

import sys
import tomllib
from pathlib import Path

import pytest

from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.core.rows import write_rows
from fedpn.data.sources.dicom import _taught
from fedpn.data.sources.download import download
from fedpn.flower.deploy.environment import program
from fedpn.reporting.gallery import bubbles_png
from fedpn.runs.trackers import find_tracker
from fedpn.serving.onnx import write_onnx


def _serve():
    raise UserError("served" if main(["serve", "nowhere"]) == 0 else "as the command line says it")


def _dicom():
    with _taught("a.dcm"):
        pass


# By extra: the module that is missing, and what needs it.
NEEDS = {
    "parquet": ("pyarrow", lambda: write_rows(Path("a.parquet"), [{"a": 1}])),
    "dicom": ("pydicom.config", _dicom),
    "flower": ("flwr", lambda: program("flwr")),
    "onnx": ("onnx", lambda: write_onnx(None, Path("model.onnx"))),
    "serve": ("uvicorn", _serve),
    "data": ("pooch", lambda: download("http://localhost/a", "0", Path())),
    "plots": ("matplotlib", lambda: bubbles_png(None, None)),
    "tensorboard": ("tensorboardX", lambda: find_tracker("tensorboard")),
    "mlflow": ("mlflow", lambda: find_tracker("mlflow")),
}


def test_every_extra_is_tried():
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert extras.keys() == NEEDS.keys()


@pytest.mark.parametrize("extra", NEEDS)
def test_what_needs_an_extra_names_it(extra, monkeypatch, tmp_path, capsys):
    module, need = NEEDS[extra]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fedpn.service.listen", raising=False)  # it has its uvicorn
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        need()
    assert f"pip install 'fedpn[{extra}]'" in str(refused.value) + capsys.readouterr().err
