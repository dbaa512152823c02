"""Rows that belong together are dealt whole, and count once."""

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.dataset import Dataset
from fedpn.data.federation import federate, together, tuning
from fedpn.data.sources.given import take
from fedpn.data.sources.own import load_own
from fedpn.data.units import of_names, of_rows
from fedpn.runs.config import resolve
from fedpn.runs.prepare import deal, fingerprint

USES = ("train", "calibration", "test")
PATIENTS, VISITS = 240, 5


@pytest.fixture
def clinic(tmp_path):
    """Visits of patients, who are ill or not; some were at two hospitals."""
    rng = np.random.default_rng(0)
    lines = ["age,pulse,label,hospital,patient"]
    for patient in range(PATIENTS):
        for visit in range(1 + patient % VISITS):
            hospital = "BA"[(patient + (visit == 3)) % 2]
            cells = f"{rng.normal():.4f},{rng.normal():.4f},{'sick' if patient % 3 else 'well'}"
            lines.append(f"{cells},{hospital},P{patient}")
    path = tmp_path / "clinic.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def dealt(path, **data):
    return deal(resolve([{"dataset": str(path), "clients": 3, "data": data}]))


def uses_of(federation, units):
    """For each unit, the uses that its rows have, and of how many clients they are."""
    found = {}
    for use in USES:
        for client, rows in enumerate(getattr(federation, use)):
            for unit in units[rows].tolist():
                found.setdefault(unit, set()).add((use, client))
    return found


@pytest.mark.parametrize("partition", ["dirichlet", "iid", "natural"])
def test_no_patient_is_in_two_of_train_calibration_and_test(clinic, partition):
    more = {"client": "hospital"} if partition == "natural" else {"ignore": ("hospital",)}
    dataset, federation = dealt(clinic, group="patient", partition=partition, **more)
    assert "patient" not in dataset.features and len(np.unique(dataset.group)) == PATIENTS
    found = uses_of(federation, dataset.group)
    assert len(found) == PATIENTS
    assert all(len({use for use, _ in uses}) == 1 for uses in found.values())
    if partition != "natural":
        assert all(len(uses) == 1 for uses in found.values())
    calibration = dataset.group[np.concatenate(federation.calibration)]
    assert len(np.unique(calibration)) == len(calibration)  # thresholds count patients
    assert any("240 groups by 'patient' are dealt whole" in line for line in dataset.remarks)
    shared = [line for line in dataset.remarks if "other clients have as well" in line]
    assert bool(shared) == (partition == "natural")


def test_a_client_all_of_whose_groups_others_have_too_takes_part():
    units = np.tile(np.arange(40), 2)
    owned = [np.arange(40), np.arange(40, 80)]
    federation = federate(np.arange(80) % 2, owned, 0, units, across=True)
    first, second = ([units[getattr(federation, use)[c]] for use in USES] for c in (0, 1))
    assert all(set(a) == set(b) for a, b in zip(first, second, strict=True))


def test_shares_are_of_groups():
    units = np.arange(400) // 4
    federation = federate(units % 2, [np.arange(400)], 0, units)
    sizes = [len(np.unique(units[getattr(federation, use)[0]])) for use in USES]
    assert sizes == [50, 20, 30] and len(federation.calibration[0]) == 20
    assert federation.standing(federation.test[0]).sum() == 30
    assert federation.copies(0) == 0.75


def test_rows_without_copies_are_dealt_as_ever():
    labels, owned = np.arange(60) % 3, [np.arange(40), np.arange(40, 60)]
    plain, single = (federate(labels, owned, 7, u) for u in (None, of_rows(np.arange(60)[:, None])))
    for use in USES:
        for a, b in zip(getattr(plain, use), getattr(single, use), strict=True):
            assert a.tolist() == b.tolist()
    assert single.copies(0) == 0 and single.standing(single.test[0]).all()


def test_copies_are_dealt_to_one_client_and_one_use():
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    x, y = np.tile(x, (20, 1)), np.tile(np.arange(60) % 3, 20)
    dataset, federation = deal(resolve([{"clients": 3}]), Dataset("a", x, y, tuple("abc")))
    found = uses_of(federation, dataset.group)
    assert len(found) == 60 and all(len(uses) == 1 for uses in found.values())
    assert sum(map(len, federation.calibration)) == 12


def test_equal_rows_may_be_cases_of_their_own():
    x, y = np.zeros((40, 2), np.float32), np.arange(40) % 2
    config = resolve([{"clients": 1, "data": {"copies": "each", "partition": "iid"}}])
    _, federation = deal(config, Dataset("a", x, y, ("a", "b")))
    assert len(federation.calibration[0]) == 8
    few = resolve([{"clients": 1, "data": {"partition": "iid"}}])
    with pytest.raises(UserError, match="fewer than 2 classes"):
        deal(few, Dataset("a", x, y, ("a", "b")))


def test_tuning_rows_have_no_copy_that_is_trained_on():
    units = np.arange(200) // 4
    held = tuning(federate(units % 2, [np.arange(200)], 0, units), 0)
    assert not set(units[held.train[0]]) & set(units[held.test[0]])
    assert len(np.unique(units[held.test[0]])) == 5


def test_new_rows_keep_the_use_of_the_old_rows_that_they_repeat():
    x = np.random.default_rng(0).normal(size=(100, 2))
    new = np.concatenate([x[:60], x[:40] + 9])
    y, units = np.arange(100) % 2, of_rows(np.concatenate([x, new]))
    old = federate(y, [np.arange(100)], 0, units[:100])
    more = federate(y, [np.arange(100)], 1, units[100:])
    whole = together(np.concatenate([y, y]), old, more, 100)
    assert all(len(uses) == 1 for uses in uses_of(whole, units).values())
    assert set(old.test[0]) < set(whole.test[0])


def test_groups_of_arrays_and_archives(tmp_path):
    x, y, who = np.zeros((6, 2)), np.array([0, 1] * 3), np.array(list("aabbcc"))
    given = take((x, y, None, who))
    assert given.groups == "group" and given.group.tolist() == of_names(who).tolist()
    np.savez(tmp_path / "a.npz", x=x, y=y, group=who)
    found = load_own(tmp_path / "a.npz")
    assert found.groups == "group" and found.group.tolist() == given.group.tolist()
    assert fingerprint(found) != fingerprint(Dataset(found.name, found.x, found.y, found.classes))
