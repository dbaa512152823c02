"""Rows that several nodes have, found behind each node's policy."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")

from flwr.app import Context, RecordDict

from fedpn.core.errors import UserError
from fedpn.flower.app.policy import FILE, Policy, check, write_policy
from fedpn.flower.app.records import has_tensors, unpack
from fedpn.flower.app.server_app import app
from fedpn.runs.config import resolve, to_tree
from fedpn.serving.bundle import open_bundle
from flower_grid import SERVER, LocalGrid

CONFIG = {
    "dataset": "clinic",
    "algorithm": "analytic",
    "clients": 3,
    "routing": {"risk": 0.2, "abstain": 0.2, "outliers": 0.2},
    "data": {"classes": ["ill", "well"], "features": ["a", "b", "c"], "ignore": ["patient"]},
}


def table(path, seed):
    rng = np.random.default_rng(seed)
    lines = ["a,b,c,label,patient"]
    for number, (a, b, c) in enumerate(rng.normal(size=(200, 3))):
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{'ill' if a > 0 else 'well'},{seed}-{number // 4}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def nodes(home, policies):
    """Anna and Bert have the same rows, Carl others."""
    found = {}
    for number, (seed, policy) in enumerate(zip((1, 1, 2), policies, strict=True)):
        state, data = home / f"state{number}", home / f"{number}.csv"
        state.mkdir()
        (state / FILE).write_text(write_policy(replace(Policy(), copies=policy)))
        table(data, seed)
        name = ("anna", "bert", "carl")[number]
        found[100 + number] = {"name": name, "data": str(data), "state-dir": str(state)}
    return found


def conduct(home, policies, secure, **data):
    grid, config = LocalGrid(nodes(home, policies)), resolve([CONFIG, {"data": data}])
    terms = {"config": json.dumps(to_tree(config)), "out": str(home / "run"), "resume": False}
    terms |= {"nodes": 3, "timeout": 0.2, "round-timeout": 60.0, "secure": secure}
    app(grid, Context(7, SERVER, {}, RecordDict(), terms))
    told = json.loads((home / "run/metrics.json").read_text())
    return grid, [open_bundle(home / f"state{n}/bundle").standards for n in range(3)], told


@pytest.mark.parametrize(
    ("policy", "secure", "looked"),
    [("always", False, True), ("masked", True, True), ("masked", False, False)],
)
def test_nodes_find_the_rows_that_others_have_too(policy, secure, looked, tmp_path):
    _, held, told = conduct(tmp_path, [policy] * 3, secure)
    shares = [round(float(standards.elsewhere), 1) for standards in held]
    assert shares == ([1, 1, 0] if looked else [-1, -1, -1])
    assert [standards.answers for standards in held[:2]] == [not looked] * 2
    assert held[2].answers
    words = "are at other clients as well" if looked else "was not looked for at all of them"
    assert any(words in line for line in told["warnings"])


def test_a_node_that_forbids_it_sends_an_empty_sketch(tmp_path):
    grid, held, _ = conduct(tmp_path, ["never", "always", "always"], secure=False)
    # Anna sees that one of the others has her rows; to them she shows none.
    assert [round(float(standards.elsewhere), 1) for standards in held] == [1, -1, -1]
    sketches = {}
    for _, number, content in grid.heard:
        found = unpack(content, ()) if has_tensors(content) else {}
        if "copies" in found:
            sketches[number] = float(found["copies"]["sketch"].abs().sum())
    assert sketches == {100: 0, 101: pytest.approx(200, abs=5), 102: pytest.approx(200, abs=5)}


def test_groups_of_a_nodes_own_table_are_not_parted(tmp_path):
    _, held, _ = conduct(tmp_path, ["never"] * 3, secure=False, group="patient", ignore=[])
    assert all(standards.promises[0].answered <= 10 for standards in held)  # of 50 patients


def test_a_column_of_groups_is_read_only_where_the_policy_allows_it():
    config = resolve([CONFIG, {"data": {"group": "patient", "ignore": []}}])
    features = ("a", "b", "c")
    check(config, Policy(columns=(*features, "label", "patient")), own=True)
    with pytest.raises(UserError, match="column of groups is not among its columns"):
        check(config, Policy(columns=(*features, "label")), own=True)
