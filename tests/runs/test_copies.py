"""Promises of rows that repeat, or that several clients have: kept on fresh rows, or not made."""

import json

import numpy as np
import pytest
import torch

import fedpn
from fedpn.cli.main import main
from fedpn.data.dataset import Dataset
from fedpn.federated.copies import PLACES, sketch
from fedpn.runs.config import resolve
from fedpn.runs.membership import forget, join, update
from fedpn.runs.pipeline import run
from fedpn.serving.bundle import open_bundle
from fedpn.serving.labelled import Rows, calibrate, read_labelled, score
from fedpn.serving.predict import load

RISK, CLASSES, COLUMNS = 0.05, 4, 40
CENTRES = np.random.default_rng(99).normal(size=(CLASSES, COLUMNS)) * 0.5


def draw(count, seed, noise=0.1):
    """Rows of a mixture; a part of the labels nobody can know."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, count)
    x = CENTRES[y] + rng.normal(size=(count, COLUMNS))
    y = np.where(rng.random(count) < noise, rng.integers(0, CLASSES, count), y)
    return x.astype(np.float32), y


def gathered(parts, **more):
    """A dataset of rows that are their clients' already."""
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    client = np.repeat(np.arange(len(parts)), [len(part[1]) for part in parts])
    names = tuple(f"c{number}" for number in range(len(parts)))
    return Dataset("made", x, y, tuple("abcd"), client, names, **more)


def played(out, dataset, **routing):
    layer = {"dataset": "made.csv", "algorithm": "analytic", "routing": {"risk": RISK} | routing}
    return run(resolve([layer]), out, given=dataset)


def answered_and_wrong(out, client, x, y):
    predictor, rows = load(out, client), torch.from_numpy(x)
    views = predictor.views(rows)._replace(share=0.5)
    decision, _ = predictor.decide(views, predictor.strangers(rows))
    there = decision.answered.numpy()
    return int(there.sum()), int((decision.label.numpy() != y)[there].sum())


def kept_or_none_made(out, clients, noise=0.1):
    """Few clients, if any, answer more fresh rows wrongly than promised beyond chance."""
    fresh = draw(2000, 1, noise)
    found = [answered_and_wrong(out, f"c{client}", *fresh) for client in range(clients)]
    return sum(wrong > RISK * count + 3 * (RISK * count) ** 0.5 for count, wrong in found) <= 1


@pytest.mark.parametrize(("rows", "noise"), [(60, 0.1), (300, 0.0)])
def test_rows_that_are_repeated_20_times_promise_no_more_than_they_can(tmp_path, rows, noise):
    parts = [tuple(np.repeat(p, 20, 0) for p in draw(rows, 10 + c, noise)) for c in range(3)]
    told = played(tmp_path / "run", gathered(parts))
    assert kept_or_none_made(tmp_path / "run", 3, noise)
    assert any("95 % of its rows repeat others" in line for line in told["warnings"])
    held = open_bundle(tmp_path / "run", "c0").standards
    assert all(promise.answered <= 3 * rows / 5 for promise in held.promises)
    assert told["promise"]["own"]["rows"] <= 0.3 * rows  # a test row is one of its copies


def test_nothing_is_promised_of_rows_that_several_clients_have(tmp_path):
    same, other = draw(300, 10), [draw(300, 11), draw(300, 12)]
    told = played(tmp_path / "run", gathered([same, same, *other]), sets=0.1)
    assert kept_or_none_made(tmp_path / "run", 4)
    text = "about 100 % of its rows are at other clients as well"
    assert any(line.startswith("client c0, c1: " + text) for line in told["warnings"])
    of_c0 = told["per_client"][0]["promise"]["own"]
    assert of_c0["answered"] == 0
    standards = {c: open_bundle(tmp_path / "run", c).standards for c in ("c0", "c1", "c2", "c3")}
    assert [round(float(s.elsewhere), 1) for s in standards.values()] == [1, 1, 0, 0]
    assert torch.isinf(standards["c0"].odd).all() and not torch.isinf(standards["c2"].odd).any()
    report = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert text in report.replace("\u00a0", " ")
    note = json.loads((tmp_path / "run" / "bundle.json").read_text("utf-8"))
    assert "rows that other clients have as well: c0 (100 %), c1 (100 %)" in json.dumps(note)


def test_a_third_of_the_rows_suffices_and_chance_does_not(tmp_path):
    parts = [draw(300, 10 + client) for client in range(4)]
    parts[1] = tuple(
        np.concatenate([mine[100:], theirs[:100]])
        for mine, theirs in zip(parts[1], parts[0], strict=True)
    )
    played(tmp_path / "run", gathered(parts))
    shares = [float(open_bundle(tmp_path / "run", f"c{c}").standards.elsewhere) for c in range(4)]
    assert shares[:2] == pytest.approx([1 / 3] * 2, abs=0.05) and shares[2:] == [0, 0]


def test_who_says_that_equal_rows_are_cases_is_told_that_nobody_looked(tmp_path):
    config = {"dataset": "made.csv", "algorithm": "analytic", "routing": {"risk": RISK}}
    same = draw(300, 10)
    layers = [config, {"data": {"copies": "each"}}]
    told = run(resolve(layers), tmp_path / "run", given=gathered([same, same]))
    assert any("was not looked for at all of them" in line for line in told["warnings"])


def test_where_noise_guards_what_is_sent_nobody_looks(tmp_path):
    config = {
        "dataset": "made.csv",
        "algorithm": "fedavg",
        "rounds": 1,
        "aggregation": {"rule": "private"},
        "method": {"optimizer_state": "reset"},
        "routing": {"risk": 0.5},
    }
    told = run(resolve([config]), tmp_path / "run", given=gathered([draw(200, 1), draw(200, 2)]))
    assert any("was not looked for at all of them" in line for line in told["warnings"])


def test_a_stranger_to_the_sum_is_told_apart_from_a_part_of_it():
    """The inner product counts common rows, give or take its error."""
    key, errors = b"key", []
    for seed in range(20):
        units = np.random.default_rng(seed).integers(-(2**62), 2**62, 3000)
        mine, others = (sketch(part, key, PLACES) for part in (units[:500], units[450:]))
        errors.append(float(mine @ others) - 50)
    expected = (500 * 2550 / PLACES) ** 0.5
    assert abs(np.mean(errors)) < expected and 0.5 < np.std(errors) / expected < 2


def test_copies_among_labelled_rows_count_once(tmp_path, capsys):
    fedpn.run(tmp_path / "run", dataset="digits", algorithm="analytic", clients=3, head__filters=10)
    digits = fedpn.open_dataset("digits")
    few = np.tile(np.arange(60), 20)
    np.savez(tmp_path / "copies.npz", images=digits.x[few], labels=digits.y[few])
    np.savez(tmp_path / "once.npz", images=digits.x[:60], labels=digits.y[:60])
    bundle = open_bundle(tmp_path / "run", "1")
    both = [read_labelled(str(tmp_path / f"{name}.npz"), bundle) for name in ("copies", "once")]
    held = [
        calibrate(tmp_path / "run", "1", rows, tmp_path / f"c{len(rows.y)}", risk=RISK)
        for rows in both
    ]
    assert torch.equal(held[0].promise, held[1].promise)
    assert score(load(tmp_path / "run", "1"), both[0])["groups"] == 60
    command = ["calibrate", str(tmp_path / "run"), str(tmp_path / "copies.npz"), "--client", "1"]
    assert main([*command, "--risk", "0.05", "--out", str(tmp_path / "cli")]) == 0
    told = capsys.readouterr().out
    assert "thresholds from 60 rows (of 1200: copies and groups count once)" in told
    assert "was not looked for" in told


def written(path, *parts, more=""):
    """Rows as a table, those of a client after those of another; `more` is a column of names."""
    lines = [
        ",".join([*(f"x{i}" for i in range(COLUMNS)), "label", "client", *filter(None, [more])])
    ]
    for number, (x, y) in enumerate(parts):
        for place, (row, label) in enumerate(zip(x, y, strict=True)):
            cells = [*(f"{value:.4f}" for value in row), "abcd"[label], f"c{number}"]
            lines.append(",".join(cells + [f"{more}-{number}-{place // 5}"] * bool(more)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three clients, whose tables have rows of their own."""
    place = tmp_path_factory.mktemp("three")
    parts = [draw(300, 10 + client, 0.0) for client in range(3)]
    data = written(place / "all.csv", *parts)
    layer = {"dataset": data, "algorithm": "analytic", "routing": {"risk": 0.2}}
    run(resolve([layer]), place / "run")
    return place / "run", parts


def elsewhere(out, client):
    return round(float(open_bundle(out, client).standards.elsewhere), 1)


def test_who_joins_with_rows_of_others_is_promised_nothing(three, tmp_path):
    base, parts = three
    assert [elsewhere(base, f"c{client}") for client in range(3)] == [0, 0, 0]
    for name, part, share in (("same", parts[1], 1), ("other", draw(300, 20, 0.0), 0)):
        told = join(base, written(tmp_path / f"{name}.csv", part), name, tmp_path / name)
        assert elsewhere(tmp_path / name, name) == share
        assert any("at other clients as well" in line for line in told["warnings"]) == bool(share)


def test_new_rows_that_repeat_old_ones_are_the_clients_own(three, tmp_path):
    base, parts = three
    more = tuple(np.concatenate(pair) for pair in zip(parts[0], draw(100, 21), strict=True))
    told = update(base, written(tmp_path / "more.csv", more), "c0", tmp_path / "updated")
    assert elsewhere(tmp_path / "updated", "c0") == 0
    assert any("of its rows repeat others" in line for line in told["warnings"])
    trained = told["per_client"][0]["rows"]
    assert trained == pytest.approx(2 * 150 + 50, abs=15)  # old ones, their copies, new ones


def test_who_stays_has_no_rows_of_one_who_left(tmp_path):
    same, other = draw(300, 10), draw(300, 11)
    data = written(tmp_path / "all.csv", same, same, other)
    layer = {"dataset": data, "algorithm": "analytic", "routing": {"risk": 0.2}}
    run(resolve([layer]), tmp_path / "run")
    forget(tmp_path / "run", "c1", tmp_path / "left")
    assert [elsewhere(tmp_path / "run", c) for c in ("c0", "c2")] == [1, 0]
    assert [elsewhere(tmp_path / "left", c) for c in ("c0", "c2")] == [0, 0]


def test_a_promise_is_counted_in_patients(tmp_path):
    """Five rows of a patient are one case, for limits, tests and labelled rows that come later."""
    data = written(
        tmp_path / "all.csv", *(draw(1200, 10 + c, 0.0) for c in range(3)), more="patient"
    )
    layer = {"dataset": data, "algorithm": "analytic", "routing": {"risk": 0.3}}
    told = run(resolve([layer, {"data": {"group": "patient"}}]), tmp_path / "run")
    for client in range(3):
        held = open_bundle(tmp_path / "run", f"c{client}").standards
        assert 0 < held.promises[0].answered <= 48
    assert told["promise"]["own"]["rows"] <= 72
    command = ["calibrate", str(tmp_path / "run"), data, "--client", "c0", "--risk", "0.3"]
    assert main([*command, "--group", "patient", "--out", str(tmp_path / "again")]) == 0
    assert open_bundle(tmp_path / "again").standards.promises[0].answered <= 720
    assert main([*command, "--group", "nobody", "--out", str(tmp_path / "bad")]) == 2


def test_groups_among_labelled_rows_count_once():
    x = torch.arange(12.0)[:, None]
    rows = Rows(x, torch.zeros(12).long(), np.arange(12) // 3)
    assert sorted((rows.standing // 3).tolist()) == [0, 1, 2, 3]


def test_patients_of_two_hospitals_are_no_ground_for_a_promise(tmp_path):
    """A group that two clients name is one: it has one use, and what is unclear is not promised."""
    parts = [(*draw(600, 10 + client), np.arange(600) // 5 + 60 * client) for client in range(3)]
    parts[2] = (*parts[2][:2], parts[2][2] + 1000)
    data = gathered(parts, group=np.concatenate([part[2] for part in parts]), groups="patient")
    told = played(tmp_path / "run", data)
    shares = [elsewhere(tmp_path / "run", f"c{client}") for client in range(3)]
    assert min(shares[:2]) >= 0.4 and shares[2] == 0
    assert sum("of its rows are at other clients as well" in t for t in told["warnings"]) >= 1
    assert told["per_client"][0]["promise"]["own"]["answered"] == 0


def test_a_column_that_is_left_out_does_not_hide_copies(tmp_path):
    """Texts make a recipe, which leaves numbers of rows out: what then repeats was dealt apart."""
    x, y = draw(120, 10)
    lines = [",".join([*(f"x{i}" for i in range(5)), "ward", "label", "client", "id"])]
    for number in range(20 * 120):
        row = number % 120
        cells = [*(f"{value:.4f}" for value in x[row, :5]), "NS"[row % 2], "abcd"[y[row]]]
        lines.append(",".join([*cells, "c0" if row < 60 else "c1", str(1000 + number)]))
    (tmp_path / "all.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    layer = {"dataset": str(tmp_path / "all.csv"), "algorithm": "analytic"}
    told = run(resolve([layer, {"routing": {"risk": RISK}}]), tmp_path / "run")
    assert any("repeat but for columns left out" in line for line in told["warnings"])
    assert told["promise"]["own"]["answered"] == 0
