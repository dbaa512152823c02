"""What a run is said to have come to, for methods with and without a router, and what to watch."""

import json
import shutil
from dataclasses import replace

import pytest

from fedpn.cli.main import main
from fedpn.core import store
from fedpn.reporting import report
from fedpn.reporting.classes import ByClass
from fedpn.reporting.finished import ClientMetrics, Metrics, Origin
from fedpn.reporting.history import Round
from fedpn.reporting.places import MEASURES
from fedpn.reporting.story import brought_together, gains, meaning, trained
from fedpn.reporting.watch import Seen, in_a_sentence, watch

ORIGIN = Origin(("well", "ill"), ("Oslo", "Bergen"), "wards", "", {})


def row(ind, ood=None, mix=None):
    return {"ind": ind, "ood": ood, "mix": mix}


def metrics(accuracy, headline, **measures):
    found = dict.fromkeys(MEASURES) | {"coverage": 1.0, "stranger_share": 0.0} | measures
    return Metrics("fedpn", 0, 2, 5, headline, accuracy, {}, {}, found)


SWITCHED = {
    "local": row(0.9, 0.0, 0.45),
    "global": row(0.7, 0.7, 0.7),
    "bayes": row(0.88, 0.68, 0.78),
    "oracle": row(0.9, 0.7, 0.8),
}


def test_a_router_is_told_by_who_answers():
    shares = {"local_share": 0.5, "global_share": 0.4, "coverage": 0.9}
    right = {"local_right": 0.976, "global_right": 0.8}
    assert meaning(metrics(SWITCHED, "bayes", **shares, **right)) == (
        "Where half of the inputs are foreign to a client, what is taken for its own (50.0 %) is "
        "answered 97.6 % right; what is taken for others' (40.0 %) is answered 80.0 % right; "
        "nobody answers the other 10.0 %; if all were answered, 78.0 % would be right, against "
        "45.0 % by the own model alone and 70.0 % by the federation's alone."
    )
    older = metrics(SWITCHED, "bayes", **shares)  # a run that did not count who was right
    assert "(50.0 %) is answered; what is taken for others' (40.0 %) is answered;" in meaning(older)
    switch = SWITCHED | {"switch": SWITCHED["bayes"]}
    assert meaning(metrics(switch, "switch", **shares, **right)).startswith(
        "Where half of the inputs are foreign to a client, its own model answers what it knows "
        "(50.0 %), 97.6 % right; the federation's model answers what it does not (40.0 %), 80.0 % "
    )


def test_a_router_that_asks_one_model_or_nobody():
    own = meaning(metrics(SWITCHED, "bayes", local_share=1.0, local_right=0.5, global_share=0.0))
    assert "what is taken for its own (100.0 %) is answered 50.0 % right; in all" in own
    assert "others'" not in own and "nobody" not in own
    assert "; in all 78.0 % are right, against 45.0 %" in own
    none = meaning(metrics(SWITCHED, "bayes", local_share=0.0, global_share=0.0, coverage=0.0))
    assert "client, nobody answers any input; if all were answered, 78.0 %" in none


def test_a_method_without_a_router():
    found = {"local_share": 0.98, "local_right": 0.6, "coverage": 0.98}
    both = {"personal": row(0.9, 0.3, 0.6), "global": row(0.7, 0.7, 0.7)}
    assert meaning(metrics(both, "personal", **found)) == (
        "Where half of the inputs are foreign to a client, its own model answers 98.0 %, 60.0 % "
        "right; nobody answers the other 2.0 %; if all were answered, 60.0 % would be right, "
        "against 70.0 % by the federation's alone."
    )
    one = meaning(metrics({"global": row(0.7, 0.7, 0.7)}, "global", **found))
    assert "to a client, the one model of all clients answers 98.0 %, 60.0 % right" in one
    assert one.endswith("if all were answered, 70.0 % would be right.")
    sure = metrics({"global": row(0.7, 0.7, 0.7)}, "global", local_share=1.0, local_right=0.7)
    assert meaning(sure).endswith("the one model of all clients answers 100.0 %, 70.0 % right.")


def test_one_client_to_whom_nothing_is_foreign():
    accuracy = {who: row(0.9) for who in SWITCHED}
    run = replace(metrics(accuracy, "bayes", local_share=0.9, coverage=0.9), clients=1)
    assert meaning(run).startswith("The client's own model answers 90.0 % of own inputs; nobody")
    assert trained([run], ORIGIN) == "One client learned with fedpn on wards, in 5 rounds."


def test_where_nothing_is_foreign_and_both_models_answer():
    """Nodes with data of their own: own inputs, some of which the federation's model answers."""
    shares = {"local_share": 0.93, "global_share": 0.04, "coverage": 0.97}
    right = {"local_right": 0.9, "global_right": 0.8}
    accuracy = {who: row(0.9) for who in (*SWITCHED, "switch")}
    assert meaning(metrics(accuracy, "bayes", **shares, **right)).startswith(
        "What is taken for a client's own (93.0 % of own inputs) is answered 90.0 % right; what is "
        "taken for others' (4.0 %) is answered 80.0 % right; nobody"
    )
    assert meaning(metrics(accuracy, "switch", **shares, **right)).startswith(
        "A client's own model answers what it knows (93.0 % of own inputs), 90.0 % right; the "
        "federation's model answers what it does not (4.0 %), 80.0 % right"
    )
    switch = SWITCHED | {"switch": SWITCHED["bayes"]}
    alone = metrics(switch, "switch", local_share=0.0, global_share=0.4, coverage=0.4)
    assert "to a client, the federation's model answers 40.0 %; nobody" in meaning(alone)


def test_where_rows_are_foreign_to_one_client_of_four_own_inputs_are_told_of():
    """A few rows of one site would else be set beside shares of all."""
    shares = {"local_share": 0.93, "global_share": 0.04, "coverage": 0.97}
    most = replace(metrics(SWITCHED, "bayes", mixed_clients=1, **shares), clients=4)
    assert meaning(most).startswith("What is taken for a client's own (93.0 % of own inputs)")
    assert "if all were answered, 88.0 % would be right" in meaning(most)
    assert meaning(replace(most, clients=2)).startswith("Where half of the inputs are foreign")


def test_a_run_that_knows_nothing():
    assert meaning(metrics({"global": row(None)}, "global", coverage=None)) == ""
    analytic = replace(metrics(SWITCHED, "bayes"), rounds=0)
    assert trained([analytic] * 2, ORIGIN).endswith("on wards, without rounds, 2 times over.")


def test_seeds_are_brought_to_their_mean():
    other = {who: row(1.0, 1.0, 1.0) for who in SWITCHED}
    mean = brought_together([metrics(SWITCHED, "bayes"), metrics(other, "bayes", auroc=1.0)])
    assert mean.accuracy["bayes"]["mix"] == pytest.approx(0.89)
    assert mean.measures["auroc"] == 1.0


def client(number, bayes, local=0.5, shared=0.7):
    accuracy = {"bayes": row(bayes, bayes, bayes), "local": row(1, 0, local)}
    return ClientMetrics(number, (0,), 30, accuracy | {"global": row(shared, shared, shared)}, {})


def test_what_it_is_worth_to_whom():
    run = metrics(SWITCHED, "bayes", gap_closed=0.5)
    told = gains(run, [client(0, 0.8), client(1, 0.6)])
    assert told == [
        "Against the own model alone it is better at 2 of 2 clients, worse at 0.",
        "Against the federation's alone it is better at 1 of 2 clients, worse at 1.",
        "Of what the oracle adds to the better one of both models, it gains 50.0 %.",
    ]
    assert gains(metrics(SWITCHED, "bayes", gap_closed=-1.0), [])[-1].startswith("It is below")


def seen(**changes):
    clients = [client(0, 0.8), client(1, 0.78)]
    by_class = ByClass([10, 20], [0.9, 0.8], [1.0, 1.0], [[9, 1], [4, 16]])
    rounds = [Round(1, 1.0, None), Round(2, 0.9, None)]
    usual = Seen(metrics(SWITCHED, "bayes"), [], clients, by_class, rounds, True, ORIGIN)
    return replace(usual, **changes)


def test_where_nothing_stands_out():
    found = watch(seen())
    assert in_a_sentence(found) == "No alarms."
    told = {one.title: one.text for one in found}
    assert told["The client that is worst off"].startswith("Client Bergen: 78.0 % right, where")
    assert told["Rare and hard classes"] == (
        "The rarest class, well, has 10 test rows, of which 90.0 % are found. Least found is ill: "
        "80.0 %."
    )
    assert told["Clients left out"].startswith("None")


ALARMS = {
    "warnings": ({"warnings": ["bad", "worse", "bad"]}, "2 warnings of the run"),
    "worst": ({"clients": [client(0, 0.9), client(1, 0.5)]}, "client Bergen, the worst off (50.0"),
    "class": (
        {"by_class": ByClass([10, 2], [0.9, 0.1], [1.0, 1.0], [[9, 1], [1, 1]])},
        "the class ill, found in less than half",
    ),
    "strangers": ({"has_gate": False}, "strangers are answered"),
    "left out": ({"history": [Round(1, 1.0, None, (1,), (7,))]}, "2 clients left out of some"),
    "below": (
        {"run": metrics(SWITCHED | {"bayes": row(0.6, 0.6, 0.6)}, "bayes")},
        "the federation's model alone would be right more often (70.0 %)",
    ),
    "promise": (
        {"run": metrics(SWITCHED, "bayes", risk=0.05, sure=0.9, wrong_own=0.2)},
        "more wrong answers on test rows than were promised",
    ),
    "privacy": (
        {"run": replace(metrics(SWITCHED, "bayes", epsilon=1e4), privacy="ε")},
        "ε = 1e+04 promises next to nothing",
    ),
}


def test_clients_at_which_a_promise_is_broken_are_named():
    """A bank that answered 94 % of its inputs, 43 of 240 of them wrongly."""
    kept, broken = {"wrong": 0.06, "rows": 50}, {"wrong": 43 / 240, "rows": 240}
    nothing = {"wrong": None, "rows": 0}
    tested = [
        replace(client(i, 0.8), promise={"risk": 0.1, "own": own, "foreign": nothing})
        for i, own in enumerate((kept, broken))
    ]
    run = metrics(SWITCHED, "bayes", risk=0.1, sure=0.9, wrong_own=0.08)
    (found,) = [one for one in watch(seen(run=run, clients=tested)) if one.title == "The promise"]
    assert "above the promise at 1 of 2 clients" in found.text
    assert "more than chance allows at Bergen" in found.text
    assert found.alarm == "the promise is broken on test rows of Bergen"


@pytest.mark.parametrize("name", ALARMS)
def test_what_alarms_is_said_first(name):
    changes, words = ALARMS[name]
    found = watch(seen(**changes))
    assert words in in_a_sentence(found)
    assert found[0].alarm and len([one for one in found if one.alarm]) <= 2


def test_clients_that_were_left_out_are_named():
    rounds = [Round(1, 1.0, None, (1,)), Round(2, 1.0, None, (1,), (9,))]
    (found,) = [one for one in watch(seen(history=rounds)) if one.title == "Clients left out"]
    assert found.text == "Rounds that went on without a client: Bergen (2 of 2), 9 (1 of 2)."


def test_bytes_are_shown_where_they_were_counted(quick_run, tmp_path, capsys):
    run = shutil.copytree(quick_run, tmp_path / "run")
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    bare = [{k: v for k, v in line.items() if k not in ("sent", "received")} for line in lines]
    (run / "history.jsonl").write_text("\n".join(map(json.dumps, bare)))
    assert "sent to clients" not in report.text([run])
    report.write_page([run], run / "report.html")
    assert "Bytes by round" not in (run / "report.html").read_text(encoding="utf-8")
    counted = [line | {"sent": 3_000_000, "received": 1_000_000} for line in bare]
    (run / "history.jsonl").write_text("\n".join(map(json.dumps, counted)))
    total = "sent to clients / received: 6.0 MB / 2.0 MB (3.0 MB / 1.0 MB a round)"
    assert total in report.text([run])
    report.write_page([run], run / "report.html")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<td>6.0 MB, 3.0 MB in each</td>" in page and "Bytes by round" not in page
    uneven = [counted[0] | {"sent": 4_000_000}, *counted[1:]]
    (run / "history.jsonl").write_text("\n".join(map(json.dumps, uneven)))
    report.write_page([run], run / "report.html")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "the server sent 7.0 MB to clients and received 2.0 MB." in page
    assert "<td>7.0 MB</td>" in page and "<td>2.0 MB, 1.0 MB in each</td>" in page
    for wrong in (-1, 1.5, "many"):
        (run / "history.jsonl").write_text(json.dumps(bare[0] | {"sent": wrong}))
        store.seal(run)
        assert main(["report", str(run)]) == 2
        assert "line 1.sent is" in capsys.readouterr().err


def test_who_is_right_is_counted(quick_run):
    """By the outcomes that metrics tell of: the shares of right answers add up."""
    tree = json.loads((quick_run / "metrics.json").read_text())
    for one in tree["per_client"]:
        told, outcomes = one["abstention"]["right"], one["abstention"]["outcomes"]
        parts = [(outcomes["local_confident"], told["local"])]
        parts += [(outcomes["local_ood"], told["global"])]
        right = sum(share * (value or 0.0) for share, value in parts)
        assert right == pytest.approx(one["abstention"]["coverage"] * (told["answered"] or 0.0))
        nobody = (1 - one["abstention"]["coverage"]) * (told["nobody"] or 0.0)
        headline = one["accuracy"][tree["headline"]]["mix"]
        assert right + nobody == pytest.approx(headline)  # which counts every input
