"""A small run of pictures, one of a table, and a service over each."""

import numpy as np
import pytest
import swaps
from starlette.testclient import TestClient

import fedpn
from clinic import rows, write
from fedpn.service.app import make_app
from fedpn.service.decisions import Decisions
from fedpn.service.library import Library


@pytest.fixture(scope="session")
def pictures(closed_form_run):
    """Three clients with digits."""
    return closed_form_run


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Two clients with rows of three columns."""
    place = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    lines = ["age,pulse,heat,label,client"]
    for i in range(400):
        ill = i % 2
        x = rng.normal(size=3) + 1.5 * ill
        row = [f"{v:.3f}" for v in x]
        lines.append(",".join([*row, ("well", "ill")[ill], ("Oslo", "Bergen")[i % 4 // 2]]))
    (place / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    fedpn.run(place / "run", dataset=str(place / "t.csv"), algorithm="analytic", head__fourier=50)
    return place / "run"


@pytest.fixture(scope="session")
def clinic(tmp_path_factory):
    """Four hospitals with a table of all kinds of columns."""
    place = tmp_path_factory.mktemp("clinic")
    write(place / "clinic.csv", rows(1200))
    fedpn.run(
        place / "run",
        dataset=str(place / "clinic.csv"),
        algorithm="analytic",
        head__fourier=50,
        data__label="Diagnose",
        data__client="Klinik",
    )
    return place / "run"


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Models of one client that take other columns, or in another order, by name."""
    return swaps.make(tmp_path_factory.mktemp("swaps"))


@pytest.fixture
def service(pictures, tmp_path):
    """A service over the pictures that keeps decisions and inputs."""
    decisions = Decisions(f"sqlite:///{tmp_path / 'decisions.db'}")
    app = make_app(Library([pictures]), decisions=decisions, keep_inputs=True)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="session")
def digits():
    return fedpn.open_dataset("digits")
