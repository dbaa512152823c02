"""The text table of a federation."""

import numpy as np

from fedpn.data.dataset import Dataset
from fedpn.data.describe import describe
from fedpn.data.federation import federate


def test_clients_by_classes():
    labels = np.array([0] * 10 + [1] * 20 + [2] * 10)
    data = Dataset(
        "toy", np.zeros((40, 1)), labels, ("ant", "bee", "a long name"), None, ("A", "B")
    )
    federation = federate(labels, [np.arange(20), np.arange(20, 40)], seed=0)
    assert describe(data, federation).splitlines() == [
        "toy: 40 rows, 3 classes, 2 clients of 20 rows and 2 classes",
        "",
        "client  train  calib  test  ant  bee  a long na…",
        "A          10      4     6   10   10           ·",
        "B          10      4     6    ·   10          10",
    ]


def test_long_federations_are_cut_and_say_so():
    labels = np.arange(500) % 25
    data = Dataset("toy", np.zeros((500, 1)), labels, tuple(map(str, range(25))))
    federation = federate(labels, np.split(np.arange(450), 45), seed=0)
    lines = describe(data, federation).splitlines()
    assert lines[0].endswith("and 10 classes, 50 rows left over")
    assert len(lines) == 2 + 1 + 40 + 1
    assert lines[-1] == "… and 5 more clients and 5 more classes"
