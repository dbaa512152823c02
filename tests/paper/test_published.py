"""The paper's own figures, as printed, and where they do not add up."""

import numpy as np

from fedpn_paper.grid import COLUMNS, PAPER_SETS
from fedpn_paper.published import in_distribution, published, slips

# Typed from the paper: InD, OOD, Mix of the eight methods in turn; then InD of Local and the eight.
TABLE_2 = {
    "mnist": "87.6 82.3 84.8 99.3 0.0 50.0 99.3 50.0 74.7 99.6 61.8 80.5 "
    "99.5 29.4 64.1 74.2 65.0 69.4 77.9 58.9 98.4 98.4 98.3 98.3",
    "fashionmnist": "66.4 55.2 60.8 95.3 0.0 47.7 95.1 22.9 59.0 95.8 22.4 59.1 "
    "95.8 15.2 55.5 56.3 51.8 54.1 77.0 34.0 55.5 84.3 78.2 81.3",
    "organamnist": "58.1 47.5 52.3 96.9 0.0 48.5 96.2 12.5 55.4 97.3 8.1 53.4 "
    "97.7 12.6 56.2 47.8 43.3 45.5 98.0 49.0 74.4 96.2 94.9 95.5",
    "organcmnist": "49.5 45.5 43.6 93.0 0.0 46.5 91.7 2.4 47.5 95.0 13.6 54.1 "
    "95.2 10.9 54.0 50.0 43.3 44.3 95.4 53.3 73.3 94.4 88.7 91.2",
    "organsmnist": "38.9 34.8 33.0 87.4 0.0 43.8 86.7 3.2 45.8 90.5 5.7 48.0 "
    "90.9 6.0 48.5 40.5 38.9 37.2 91.8 34.0 61.8 86.9 75.5 80.0",
    "cifar10": "27.6 23.3 25.6 81.2 0.0 40.6 73.3 0.0 36.8 84.1 1.4 42.7 "
    "84.1 0.6 42.4 35.2 28.6 32.0 62.4 15.0 38.7 59.1 28.8 44.1",
    "svhn": "80.6 76.7 78.3 94.7 0.0 47.3 93.4 9.5 51.4 94.9 11.2 53.0 "
    "95.4 6.5 50.9 74.4 71.9 73.3 80.5 42.5 59.3 87.1 62.2 73.4",
}
TABLE_3 = {
    "mnist": "99.1 87.6 99.3 99.3 99.6 99.5 74.2 77.9 99.4",
    "fashionmnist": "95.3 66.4 95.3 95.1 95.8 95.8 56.3 77.0 95.7",
    "organamnist": "96.2 58.1 96.9 96.2 97.3 97.7 47.8 98.0 99.0",
    "organcmnist": "93.3 49.5 93.0 91.7 95.0 95.2 50.0 95.4 96.6",
    "organsmnist": "87.8 38.9 87.4 86.7 90.5 90.9 40.5 91.8 90.7",
    "cifar10": "77.6 27.6 81.2 73.3 84.1 84.1 35.2 62.4 75.1",
    "svhn": "91.2 80.6 94.7 93.4 94.9 95.4 74.4 80.5 92.2",
}


def test_published_figures_are_as_printed():
    for dataset, line in TABLE_2.items():
        typed = np.array(line.split(), float).reshape(8, 3).tolist()
        assert [published()["benchmark"][dataset][a] for a in COLUMNS] == typed
    for dataset, line in TABLE_3.items():
        typed = np.array(line.split(), float).tolist()
        assert [in_distribution(dataset, a) for a in ("local", *COLUMNS)] == typed


def test_every_table_is_whole():
    tables = published()
    for name, width in (("benchmark", 8), ("in_distribution", 9), ("ind", 8), ("ood", 8)):
        assert list(tables[name]) == list(PAPER_SETS)
        assert all(len(row) == width + 1 and row["bold"] for row in tables[name].values())


def test_slips_are_found():
    text = "\n".join(slips())
    assert "APFL on MNIST (77.9 and 58.9, Mix 98.4)" in text
    assert "SVHN marks FedPN (73.4) as best; FedAvg has 78.3" in text
    assert "MedMNIST-A marks FedPer (97.7) as best; APFL has 98.0" in text
    assert "FedPN on MNIST (" not in text
    assert "in the appendix" not in text  # the appendix repeats the benchmark rightly
