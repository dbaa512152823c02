"""What the paper says, what our results say of it, and the page that tells both."""

from pathlib import Path

import numpy as np
import pytest

from fedpn.core.store import read_json
from fedpn_paper import claims, figure_claims, ledger, ledger_html, ledger_markdown, verdict
from fedpn_paper.cells import Cell
from fedpn_paper.grid import COLUMNS, PAPER_SETS, cell_of
from fedpn_paper.published import in_distribution, published, slips
from fedpn_paper.record import read_records
from fedpn_paper.results import Results
from fedpn_paper.tables import Maker, tried

RESULTS = Path(__file__).parents[2] / "results"
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


def record(dataset, algorithm, mix, variant="", seed=0, note="", **rows):
    """What a cell might have left behind; InD and OOD lie two points around Mix."""
    headline = "switch" if algorithm == "fedpn" else "personal"
    accuracy = {
        who: {"ind": value + 0.02, "ood": value - 0.02, "mix": value}
        for who, value in ({headline: mix} | rows).items()
    }
    routing = {"auroc": 0.95, "gap_closed": 0.25, "score": "log_density"}
    sent = {"delegated": {"ind": 0.1, "ood": 0.9}}
    return {
        "dataset": dataset,
        "algorithm": algorithm,
        "variant": variant,
        "seed": seed,
        "settings": {},
        "clients": 20,
        "rounds": Cell(dataset, algorithm, variant, seed).config().rounds,
        "headline": headline,
        "accuracy": accuracy,
        "note": note,
    } | ({"routing": routing | sent} if algorithm == "fedpn" else {})


# The paper as printed


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


# Verdicts and the ledger


def test_a_baseline_above_fedpn_is_told_with_a_reason():
    results = Results(
        (
            record("mnist", "fedpn", 0.95, local=0.5, **{"global": 0.94, "oracle": 0.97}),
            record("mnist", "fedavg", 0.96),
            record("mnist", "fedavg", 0.85, "reset"),
            record("svhn", "fedpn", 0.80, local=0.5, **{"global": 0.81, "oracle": 0.85}),
            record("svhn", "fedavg", 0.70),
        )
    )
    best = claims.best_on_mix(results)
    assert best.verdict == verdict.IN_PART
    assert "MNIST 95.0 (its global model alone 94.0) against 96.0 of FedAvg" in best.why
    assert "85.0 with its momentum reset" in best.why
    assert "its local models have 52.0, its global one 96.0, the switch 97.0" in best.why
    both = claims.switch_beats_both(results)
    assert both.verdict == verdict.NOT, "one seed proves nothing"
    assert "MNIST +1.0, 25 % of the oracle's gain" in both.why
    assert "SVHN -1.0" in both.why


def test_the_best_of_a_candidate_is_shown():
    found = [
        {"accuracy": {"switch": {"mix": mix}}, "personal_steps": 9, "score": score, "outliers": 0.2}
        for mix, score in ((71.0, "log_density"), (72.5, "entropy"))
    ]
    table = tried({"svhn": {"adam": {"candidate": {"method": {"lr": 0.1}}, "found": found}}})
    assert table.rows == [("SVHN: adam", ["method.lr 0.1", "9", "entropy, 20 %", "72.5"])]


def test_methods_are_compared_on_like_seeds():
    """An easy deal of a second seed is no merit of the method that was run with it."""
    easy = record("mnist", "fedpn", 0.99, seed=1, local=0.5, **{"global": 0.99, "oracle": 0.99})
    hard = record("mnist", "fedpn", 0.90, local=0.5, **{"global": 0.90, "oracle": 0.93})
    verdict_ = claims.best_on_mix(Results((easy, hard, record("mnist", "fedavg", 0.92))))
    assert verdict_.verdict == verdict.NOT
    assert "MNIST 90.0 (its global model alone 90.0) against 92.0" in verdict_.why


def test_tally_over_seeds():
    results = Results(
        tuple(record("mnist", "fedpn", m, seed=i) for i, m in enumerate((0.97, 0.98)))
    )
    assert str(results.accuracy("mnist", "fedpn", "mix")) == "97.5 ± 0.5"
    assert results.accuracy("mnist", "fedavg", "mix") is None


def test_the_ledger_shows_what_is_missing():
    records = [
        record(
            "organamnist",
            "fedpn",
            0.8,
            note="a subset: 6851 of 34561 training rows",
            local=0.5,
            **{"global": 0.7, "oracle": 0.9},
        )
    ]
    book = ledger.make(records, {}, {}, Path(), here={"mnist"})
    text, page = ledger_markdown.render(book), ledger_html.render(book)
    for shown in (text, page):
        assert "MedMNIST-A (subset)" in shown
        assert "MedMNIST-C: data not at hand" in shown
        assert "MNIST: not run" in shown
        assert "{{" not in shown
    assert "**80.0** (95.5, −15.5)" in text
    assert "– (91.2)" in text
    assert "http" not in page, "the page needs nothing from elsewhere"


def test_an_empty_ledger(tmp_path):
    ledger.write(tmp_path, tmp_path / "pages", {"mnist-fedpn-s0": "it broke"})
    text = (tmp_path / "pages/ledger.md").read_text()
    assert verdict.NOT_RUN in text
    assert "mnist-fedpn-s0: it broke" in text


def test_the_ledger_in_docs_is_that_of_the_results():
    """After a change of results or words: fedpn paper --only ledger --pages docs."""
    book = ledger.make(
        read_records(RESULTS),
        ledger.read_figures(RESULTS),
        ledger.read_tuning(RESULTS),
        Path("../results"),
    )
    assert (RESULTS.parent / "docs/ledger.md").read_text() == ledger_markdown.render(book)
    assert (RESULTS.parent / "docs/ledger.html").read_text() == ledger_html.render(book)


def test_every_kept_cell_still_counts_as_done():
    """Else the next `fedpn paper` would run them all again; those cut short it shall run again."""
    for kept in read_records(RESULTS):
        cell = cell_of(kept)
        cut = kept["rounds"] < cell.config().rounds
        wanted = cell.settings() | ({"rounds": kept["rounds"]} if cut else {})
        assert kept["settings"] == wanted, cell.name


def _models(mix, local=0.5, shared=0.8, oracle=0.9):
    return {"switch": mix, "local": local, "global": shared, "oracle": oracle}


def _fedpn(dataset, mix, seed=0, auroc=0.95, **models):
    made = record(dataset, "fedpn", mix, seed=seed, **_models(mix, **models))
    made["routing"]["auroc"] = auroc
    return made


@pytest.mark.parametrize(
    ("judge", "good", "bad"),
    [
        (claims.best_on_mix, {"fedavg": 0.7}, {"fedavg": 0.9}),
        (claims.best_on_ood, {"fedavg": 0.7}, {"fedavg": 0.9}),
        (claims.switch_on_ind, {"fedper": 0.83}, {"fedper": 0.85}),
        (claims.local_on_par, {"local": 0.51}, {"local": 0.53}),
    ],
)
def test_a_claim_holds_or_not_by_the_toughest_rival(judge, good, bad):
    for rivals, expected in ((good, verdict.REPRODUCED), (bad, verdict.NOT)):
        others = [record("svhn", name, mix) for name, mix in rivals.items()]
        weak = record("svhn", "fedbabu", 0.1)
        assert judge(Results((_fedpn("svhn", 0.8), weak, *others))).verdict == expected


def test_the_density_orders_or_not():
    for auroc, expected in ((0.95, verdict.REPRODUCED), (0.85, verdict.NOT)):
        assert (
            claims.density_orders(Results((_fedpn("svhn", 0.8, auroc=auroc),))).verdict == expected
        )


def test_the_papers_figures_are_reached_or_not():
    for mix, expected in ((0.73, verdict.REPRODUCED), (0.72, verdict.NOT)):  # the paper: 73.4
        assert claims.reaches_the_figures(Results((_fedpn("svhn", mix),))).verdict == expected


def test_the_switch_must_lead_beyond_chance():
    steady = [_fedpn("svhn", mix, seed) for seed, mix in enumerate((0.81, 0.812, 0.811))]
    lucky = [_fedpn("svhn", mix, seed) for seed, mix in enumerate((0.86, 0.80, 0.80))]
    assert claims.switch_beats_both(Results(tuple(steady))).verdict == verdict.REPRODUCED
    assert claims.switch_beats_both(Results(tuple(lucky))).verdict == verdict.NOT


def test_methods_without_a_seed_in_common_are_left_out():
    records = [_fedpn("svhn", 0.8), record("svhn", "fedper", 0.9, seed=1)]
    assert "fedper" not in claims.best_on_mix(Results(tuple(records))).why.lower()
    text = ledger_markdown.render(ledger.make(records, {}, {}, Path()))
    assert "SVHN" in text


BREAK = {
    "landscape": lambda r: r["exact_slope"]["0.01"].append(-1.0),
    "toy": lambda r: r["places"]["text"]["bayesian"].reverse(),
    "scores": lambda r: r["sets"]["mnist"]["scores"]["entropy"].update(mix=0.5),
    "noisy": lambda r: r["per_seed"][0]["clients"]["auroc"].update(aleatoric=0.5),
    "stopgrad": lambda r: r["per_seed"][0]["noise"]["repaired"]["median"].update(noisy=-99.0),
    "threshold": lambda r: r["sets"]["mnist"]["reference"]["global"].update(mix=1.0),
    "overhead": lambda r: r["encoders"][0]["parameters"].update(flows=10**6),
}


@pytest.mark.parametrize("name", figure_claims.CLAIMS)
def test_a_figures_claim_is_judged_by_its_numbers(name):
    result = read_json(RESULTS / "experiments" / name / "result.json")
    before = figure_claims.judge(name, result).why.count("✓")
    BREAK[name](result)
    assert figure_claims.judge(name, result).why.count("✓") == before - 1


def test_what_was_cut_short_or_left_out_is_told():
    short = record("svhn", "fedbn", 0.7) | {"rounds": 50}
    resnet = record("svhn", "fedpn", 0.7, "resnet18", **_models(0.7))
    notes = "\n".join(ledger.notes(Results((_fedpn("svhn", 0.8), short, resnet))))
    assert "Cut short: FedBN on SVHN, seed 0: 50 rounds instead of 100." in notes
    assert notes.count("Cut short") == 1, "thirty rounds are all that a ResNet has"
    assert "FedAvg with ResNet-18 on SVHN, seed 0" in notes
    assert "FedPN with ResNet-18 on SVHN, seed 0" not in notes


def test_a_global_model_that_has_not_learned_is_told():
    made = record("svhn", "perfedavg", 0.4, **{"global": 0.12})
    assert "Per-FedAvg's global model" in "\n".join(ledger.notes(Results((made,))))


def test_resnets_stand_beside_the_papers_figures():
    made = record("svhn", "fedpn", 0.7, "resnet18", **_models(0.7))
    (row,) = Maker(Results((made,)), ()).resnet().rows
    assert row.name == "SVHN, FedPN"
    assert [cell.paper for cell in row.cells[:3]] == [87.1, 62.2, 73.4]
    assert [cell.ours.mean for cell in row.cells[3:6]] == pytest.approx([52.0, 80.0, 90.0])
    assert row.cells[6] == "30"


def test_resnets_are_compared_too():
    records = [_fedpn("svhn", 0.8), record("svhn", "fedavg", 0.7)]
    records.append(record("svhn", "fedpn", 0.66, "resnet18", **_models(0.66)))
    assert "ResNet" not in claims.best_on_mix(Results(tuple(records))).why
    records.append(record("svhn", "fedavg", 0.7, "resnet18"))
    why = claims.best_on_mix(Results(tuple(records))).why
    assert "With ResNet-18, after 30 rounds, seed 0: SVHN 66.0 against 70.0 of FedAvg." in why


def test_a_quick_look_says_so():
    small = _fedpn("svhn", 0.8) | {"settings": {"clients": 8, "rounds": 10}, "clients": 8}
    book = ledger.make([small], {}, {}, Path())
    assert all(v.why.startswith(verdict.SMALL) for v in book.verdicts if v.verdict != "not run")
    assert "dealt to 8 clients" in book.notes[0]
    assert "10 of 10 batches" in ledger_markdown.render(book)


def test_the_readme_shows_the_ledgers_table():
    """Ours as in the ledger, the paper's behind the dot."""
    readme = (RESULTS.parent / "README.md").read_text()
    rows = Maker(Results(tuple(read_records(RESULTS))), ()).benchmark("mix", "", "").rows
    for name, cells in rows:
        if any(cell.ours for cell in cells):
            shown = [
                ("**{}**" if cell.best else "{}").format(cell.ours or "–")
                + (f" · {cell.paper}" if cell.paper is not None else "")
                for cell in cells
            ]
            assert f"| {name} | {' | '.join(shown)} |" in readme
