"""Clients that come when the rounds are over: judged without training, or with new rows."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedpn
from fedpn.algorithms import ALGORITHMS
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.core.trees import unflatten
from fedpn.data.sources import datasets
from fedpn.federated.heads.sums import solve, unpack
from fedpn.reporting import report
from fedpn.runs import membership
from fedpn.runs.config import resolve
from fedpn.runs.directory import stored
from fedpn.runs.membership import update
from fedpn.runs.prepare import deal, prepare, who_trains

QUICK = {
    "dataset": "digits",
    "clients": 5,
    "rounds": 2,
    "train__steps": 3,
    "train__late": 2,
    "method__adapt_epochs": 0,
    "method__adapt_steps": 3,
    "data__unseen": 0.4,
    "routing__abstain": 0.2,
    "routing__outliers": 0.2,
}


def test_who_never_trains_has_no_row_in_training():
    config = resolve([{"clients": 5, "data": {"unseen": 0.4}}])
    setup = prepare(config)
    _, whole = deal(config)
    seen, unseen = who_trains(config, 5)
    assert (len(seen), len(unseen)) == (3, 2) and sorted(seen + unseen) == list(range(5))
    trained = np.concatenate(setup.federation.train)
    for place, client in enumerate(unseen):
        assert not np.isin(whole.rows(client), trained).any()
        assert setup.unseen.names[place] == str(client)
        # Foreign rows are those of all other clients, as ever.
        alone = setup.unseen.federation.beside([place])
        np.testing.assert_array_equal(alone.ood(0), whole.ood(client))
    assert setup.dataset.clients == tuple(map(str, seen))


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_method_serves_clients_that_never_trained(algorithm, tmp_path):
    norm = {"model__norm": "batch"} if algorithm == "fedbn" else {}
    run = fedpn.run(tmp_path / "run", algorithm=algorithm, **QUICK, **norm)
    assert run["clients"] == 3 and run["unseen"]["clients"] == 2
    assert run["unseen"]["accuracy"].keys() == run["accuracy"].keys()
    assert len(run["unseen"]["per_client"]) == len(run["unseen"]["names"]) == 2
    assert "unseen (2), %" in report.text([tmp_path / "run"])
    assert "Clients that never trained: each was served" in run.report.read_text(encoding="utf-8")


def test_newcomers_learn_what_a_method_lets_them_learn_for_themselves(tmp_path):
    """Ditto's own models begin as they were drawn: without rounds they know nothing."""
    common = {"dataset": "digits", "algorithm": "ditto", "clients": 6, "rounds": 15}
    common |= {"data__unseen": 0.3, "data__partition": "iid"}
    own = [
        fedpn.run(tmp_path / str(late), **common, train__late=late)["unseen"]["accuracy"][
            "personal"
        ]
        for late in (0, 15)
    ]
    assert own[1]["ind"] > own[0]["ind"] + 0.3


def test_a_class_that_comes_with_a_newcomer_is_learned(tmp_path):
    digits = datasets.load("digits")
    old = digits.y < 8
    np.savez(tmp_path / "old.npz", images=digits.x[old], labels=digits.y[old])
    new = digits.y >= 7
    names = np.array([str(label) for label in digits.y[new]])
    np.savez(tmp_path / "new.npz", images=digits.x[new], labels=names)
    classes = {"data__classes": list("0123456789")}
    few = {"algorithm": "analytic", "clients": 3, "head__filters": 20}
    run = fedpn.run(tmp_path / "run", dataset=str(tmp_path / "old.npz"), **few, **classes)
    assert run["accuracy"]["global"]["ind"] > 0.9
    command = ["join", str(tmp_path / "run"), str(tmp_path / "new.npz"), "--client", "late"]
    assert main([*command, "--out", str(tmp_path / "late")]) == 0
    assert fedpn.open(tmp_path / "late")["accuracy"]["global"]["ind"] > 0.9


@pytest.fixture
def halves(tmp_path):
    """Digits in two files: those of a run, and those that come later."""
    digits = datasets.load("digits")
    order = np.random.default_rng(0).permutation(len(digits))
    for name, rows in (("old", order[:1200]), ("new", order[1200:1400])):
        np.savez(tmp_path / f"{name}.npz", images=digits.x[rows], labels=digits.y[rows])
    return tmp_path


def test_new_rows_of_a_client(halves):
    few = {"algorithm": "analytic", "clients": 3, "head__filters": 10, "data__partition": "iid"}
    fedpn.run(halves / "run", dataset=str(halves / "old.npz"), **few)
    command = ["update", str(halves / "run"), str(halves / "new.npz"), "--client", "1"]
    assert main([*command, "--out", str(halves / "more")]) == 0
    before, after = (
        unflatten(load_file(halves / name / "server.safetensors")) for name in ("run", "more")
    )
    # Only the new training rows were added: the counts tell, and the sums are theirs.
    assert float(after["head"]["counts"].sum() - before["head"]["counts"].sum()) == 100
    grown = {name: after["sums"][name] - before["sums"][name] for name in ("gram", "cross")}
    assert torch.linalg.eigvalsh(unpack(grown["gram"])).min() > -1e-6
    ridge = float(after["head"]["ridge"])
    matrix = solve(unpack(after["sums"]["gram"]), after["sums"]["cross"], ridge)
    torch.testing.assert_close(after["head"]["matrix"], matrix.float(), rtol=1e-6, atol=1e-7)
    updated = fedpn.open(halves / "more")
    assert updated.clients == ("1",) and updated["per_client"][0]["rows"] == 300
    with pytest.raises(UserError, match="an updated run is not updated again"):
        update(halves / "more", str(halves / "new.npz"), "1", halves / "again")
    with pytest.raises(UserError, match="has no client nobody"):
        update(halves / "run", str(halves / "new.npz"), "nobody", halves / "x")
    assert not (halves / "x").exists()


def test_what_was_tested_on_is_never_trained_on(halves, monkeypatch):
    """Rows that a client had keep their use when new ones come."""
    few = {"clients": 3, "rounds": 1, "train__steps": 2, "data__partition": "iid"}
    fedpn.run(halves / "run", dataset=str(halves / "old.npz"), algorithm="fedavg", **few)
    seen = {}
    real = membership.together
    monkeypatch.setattr(
        membership, "together", lambda *a: seen.setdefault("whole", real(*a)) and real(*a)
    )
    update(halves / "run", str(halves / "new.npz"), "2", halves / "more")
    _, dealt = deal(resolve([stored(halves / "run")]))
    for use in ("train", "calibration", "test"):
        old, now = getattr(dealt, use)[2], getattr(seen["whole"], use)[0]
        assert set(old) <= set(now)
        assert all(row >= 1200 for row in set(now) - set(old))
