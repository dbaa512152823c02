"""Versions of one method: an edited one is run again, and never pooled with what it was."""

import pytest

import fedpn
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.runs.studies.conduct import begin
from fedpn.runs.studies.grid import Axis, Plan
from own_method import PACE, forgotten

SMALL = {"dataset": "digits", "clients": 3, "rounds": 1, "train__steps": 1}
SWEEP = ["sweep", "digits", "--clients", "3", "--rounds", "1", "--set", "train.steps=1"]
SWEEP += ["--algorithm", "mine.py:Mine", "--over", "method.lr=0.02", "--seeds", "1", "--out", "s"]


def swept(capsys):
    """What a sweep says at its beginning, and the cells that are there at its end."""
    forgotten()
    assert main(SWEEP) == 0
    return capsys.readouterr().err.splitlines()[0], set(store.Path("s/cells").glob("*.json"))


@pytest.mark.parametrize("name", ["mine.py", "pace.py"])
def test_an_edited_method_is_swept_again_and_the_line_says_why(name, mine, capsys):
    said, first = swept(capsys)
    assert said == "1 cells: s"
    text = (mine / name).read_text()
    (mine / name).write_text(
        text.replace("return slowed(value)", "return 0 * slowed(value)").replace("/ 2", "/ 2000")
    )
    said, both = swept(capsys)
    assert said == f"1 cells; {name} was edited, so that cells are run again: s"
    assert len(both) == 2 and first < both
    old, new = (
        store.read_json(path) for path in sorted(both, key=lambda path: path in both - first)
    )
    assert old["figures"] != new["figures"] and old["settings"] == new["settings"]
    (mine / name).write_text(text)
    said, again = swept(capsys)
    assert said == "1 cells, 1 of which are there already: s" and again == both


def test_a_method_that_is_edited_while_it_is_swept_is_told(mine):
    settings = {"algorithm": "mine.py:Mine", "rounds": 1, "train": {"steps": 1}, "clients": 3}
    study = begin(
        Plan((settings | {"dataset": "digits"},), (Axis("method.lr", (0.02,)),), 1), mine / "s"
    )
    (mine / "pace.py").write_text(PACE.replace("/ 2", "/ 200"))
    with study.claimed():
        wrong = study.play(1, lambda *told: None, lambda: False)
    assert "edited while the sweep was at work" in next(iter(wrong.values()))


def test_versions_of_a_method_are_no_seeds_of_it(mine):
    for seed, pace in enumerate((PACE, PACE, PACE.replace("/ 2", "/ 200"))):
        (mine / "pace.py").write_text(pace)
        forgotten()
        fedpn.run(f"run-{seed}", algorithm="mine.py:Mine", seed=seed, **SMALL)
    runs = [f"run-{seed}" for seed in range(3)]
    methods = fedpn.compare(runs).methods
    assert sorted(method.seeds for method in methods) == [[0, 1], [2]]
    assert all(method.name.startswith("Mine code.pace.py=") for method in methods)
    assert len({method.name for method in methods}) == 2
    with pytest.raises(fedpn.UserError, match=r"run-2 differs from .*run-0 in code, not in its"):
        fedpn.reporting.report.text([mine / run for run in runs])
    assert [method.name for method in fedpn.compare(runs[:2]).methods] == ["Mine"]
