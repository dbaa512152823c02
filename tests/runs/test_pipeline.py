"""Whole runs: the same bits twice, resumed, on one's own data."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import roc_auc_score

import fedpn
from fedpn.algorithms.fedpn import FedPN
from fedpn.cli.main import main
from fedpn.core.settings import nest, read_toml
from fedpn.core.trees import flatten
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.federated import checkpoint
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import conduct
from fedpn.federated.listener import Listener, Stopped
from fedpn.federated.observer import Embedder, Observer
from fedpn.federated.personal import Adapt
from fedpn.reporting import report
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Lesson, Views
from fedpn.routing.rules import from_state
from fedpn.routing.scores import SCORES
from fedpn.runs import pipeline
from fedpn.runs.config import resolve
from fedpn.runs.measure import evaluate
from fedpn.runs.phases import phases_of
from fedpn.runs.prepare import assemble, deal, prepare
from fedpn.serving.bundle import open_bundle, read_about, read_members
from fedpn.serving.card import card

MODELS = ["shared", "clients", "routers", "rules"]
RESULTS = ["metrics.json", "bundle.json", *(f"{name}.safetensors" for name in MODELS)]
SMALL = {
    "dataset": "digits",
    "algorithm": "fedpn",
    "rounds": 3,
    "clients": 4,
    "train__steps": 2,
    "method__adapt_epochs": 1,
    "method__adapt_steps": 4,
}


def same(a, b, names=RESULTS):
    return [n for n in names if (a / n).read_bytes() != (b / n).read_bytes()] == []


def history(path):
    lines = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def test_the_same_seed_gives_the_same_bits(tmp_path):
    for name in ("a", "b"):
        fedpn.run(tmp_path / name, **SMALL)
    assert same(tmp_path / "a", tmp_path / "b")
    assert history(tmp_path / "a") == history(tmp_path / "b")
    fedpn.run(tmp_path / "c", **SMALL, seed=1)
    assert not same(tmp_path / "a", tmp_path / "c")


def test_the_report_is_the_same_too(tmp_path, quick_run):
    before = (quick_run / "report.html").read_text()
    assert main(["report", str(quick_run), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == before
    known = before.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert "http" not in known  # the page asks nobody


def test_metrics_have_the_agreed_form(quick_run):
    m = json.loads((quick_run / "metrics.json").read_text())
    assert m["format"] == 1
    assert (m["dataset"], m["algorithm"], m["seed"]) == ("digits", "fedpn", 0)
    assert (m["clients"], m["rounds"], m["headline"]) == (4, 2, "bayes")
    assert {"score", "auroc", "fpr95", "delegated", "gap_closed"} == m["routing"].keys()
    assert sum(m["abstention"]["outcomes"].values()) == pytest.approx(1)
    assert m["calibration"].keys() == {"ece", "adaptive_ece", "nll", "brier"}
    assert len(m["by_class"]["recall"]) == 10
    assert len(m["per_client"]) == 4
    for who, row in m["accuracy"].items():
        for name, value in row.items():
            each = [c["accuracy"][who][name] for c in m["per_client"]]
            assert value == pytest.approx(np.mean(each))
    mix = {who: m["accuracy"][who]["mix"] for who in m["accuracy"]}
    for c in m["per_client"]:
        oracle = c["accuracy"]["oracle"]
        assert oracle["ind"] == c["accuracy"]["local"]["ind"]
        assert oracle["ood"] == c["accuracy"]["global"]["ood"]
    assert mix["oracle"] >= mix["local"]


@pytest.mark.parametrize("algorithm", ["fedpn", "ditto"])
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, algorithm, monkeypatch):
    options = SMALL | {"rounds": 5, "algorithm": algorithm}
    fedpn.run(tmp_path / "whole", **options)
    out = tmp_path / "cut"

    class KilledError(Exception):
        pass

    def tell(stage, done, of, **facts):
        if stage == "federate" and done == 4:
            raise KilledError

    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    with pytest.raises(KilledError):
        fedpn.run(out, tell=tell, **options)
    assert len(history(out)) == 4
    assert main(["run", "--resume", "--out", str(out)]) == 0
    assert same(tmp_path / "whole", out)
    assert history(tmp_path / "whole") == history(out)


def test_resume_refuses_another_config_and_allows_more_rounds(tmp_path, capsys):
    out = tmp_path / "run"
    fedpn.run(out, **SMALL)
    assert main(["run", "--resume", "--out", str(out), "--set", "fedpn.gamma=0.5"]) == 2
    assert "fedpn.gamma was 0.01 and is now 0.5" in capsys.readouterr().err
    assert main(["run", "--resume", "--out", str(out), "--rounds", "2"]) == 2
    assert main(["run", "--resume", "--out", str(tmp_path / "none")]) == 2
    capsys.readouterr()
    assert main(["run", "--resume", "--out", str(out), "--rounds", "5"]) == 0
    fedpn.run(tmp_path / "five", **(SMALL | {"rounds": 5}))
    assert same(tmp_path / "five", out)


def test_a_run_may_end_earlier_or_be_replaced(tmp_path, capsys):
    out, few = tmp_path / "run", tmp_path / "few"
    fedpn.run(few, **(SMALL | {"rounds": 2}))
    stop = Stopping(2)
    with pytest.raises(Stopped):
        fedpn.run(out, **(SMALL | {"rounds": 9}), listener=stop)
    fedpn.run(out, resume=True, rounds=2)
    assert same(few, out) and read_toml(out / "config.toml")["rounds"] == 2
    (out / "notes.txt").write_text("dear")
    with pytest.raises(fedpn.UserError, match=r"holds notes.txt, which no run has written"):
        fedpn.run(out, overwrite=True, **SMALL)
    (out / "notes.txt").unlink()
    with pytest.raises(fedpn.UserError, match="nowhere"):
        fedpn.run(out, overwrite=True, **(SMALL | {"dataset": "nowhere.csv"}))
    assert same(few, out)  # nothing is taken away for a run that cannot begin
    fedpn.run(out, overwrite=True, **SMALL)
    fedpn.run(tmp_path / "new", **SMALL)
    assert same(tmp_path / "new", out)


class Stopping(Listener):
    """Asks a run to stop after so many rounds."""

    def __init__(self, rounds):
        self.left = rounds

    def round(self, number, numbers):
        self.left -= 1

    def stopping(self):
        return self.left <= 0


def test_a_subset_is_a_run_of_its_own(tmp_path):
    found = fedpn.run(tmp_path / "run", **SMALL, data__limit=600)
    about = read_about(tmp_path / "run").provenance["note"]
    assert "600 of 1797 rows are taken (data.limit)" in about
    assert sum(client["rows"] for client in found["per_client"]) < 600


def test_data_are_named_without_an_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--rounds", "0", "--clients", "3", "--algorithm", "analytic"]
    assert main(["run", "digits", *quick, "--set", "head.filters=2", "--out", "run"]) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["dataset"] == "digits"


def test_another_engine_may_finish_a_run(tmp_path, capsys):
    """Cohort, device and threads are this machine's; what is learned does not depend on them."""
    out, whole = tmp_path / "run", tmp_path / "whole"
    fedpn.run(out, **SMALL, engine__cohort=4)
    fedpn.run(whole, **(SMALL | {"rounds": 5}))
    resume = ["run", "--resume", "--out", str(out), "--rounds", "5", "--device", "cpu"]
    assert main([*resume, "--set", "engine.cohort=1", "--set", "engine.threads=1"]) == 0
    kept = read_toml(out / "config.toml")
    assert kept["engine"] == {"cohort": 1, "device": "cpu", "threads": 1}
    assert kept["rounds"] == 5
    assert json.loads((out / "engine.json").read_text())["cohort"] == 1
    for name in MODELS:
        ours, theirs = (load_file(p / f"{name}.safetensors") for p in (out, whole))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    capsys.readouterr()
    assert main([*resume, "--set", "train.batch=3"]) == 2
    assert "only rounds may change" in capsys.readouterr().err
    assert read_toml(out / "config.toml") == kept


def test_a_folder_of_pictures(tmp_path):
    digits = load_dataset("digits")
    for i in range(600):
        folder = tmp_path / "pictures" / digits.classes[digits.y[i]]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.x[i, 0]).save(folder / f"{i}.png")
    found = fedpn.run(tmp_path / "run", **SMALL | {"dataset": str(tmp_path / "pictures")})
    assert not load_file(tmp_path / "run" / "gallery.safetensors")  # own data are nobody's to see
    assert "data:image/png" not in (tmp_path / "run" / "report.html").read_text()
    assert found["accuracy"]["switch"]["mix"] is not None
    answers = fedpn.load(tmp_path / "run", client=0)(digits.x[:3, 0])
    assert len(answers) == 3


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_a_table_with_a_client_column(load, tmp_path):
    """Numeric features take the MLP; the client column says who owns what."""
    data = load()
    rng = np.random.default_rng(0)
    client = rng.integers(0, 2, len(data.target))
    names = [*data.feature_names, "client", "label"]
    lines = [",".join(n.replace(",", " ") for n in names)]
    for row, c, y in zip(data.data, client, data.target, strict=True):
        lines.append(",".join([*map(str, row), f"hospital-{c}", str(data.target_names[y])]))
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines))
    options = {"dataset": str(table), "data__partition": "natural", "routing__abstain": 0.1}
    found = fedpn.run(tmp_path / "run", **(SMALL | options | {"method__adapt_steps": 200}))
    assert found["clients"] == 2
    assert found["accuracy"]["local"]["ind"] > 0.8
    # Every hospital has every class: nothing is foreign, and what needs foreign rows is null.
    assert found["accuracy"]["switch"]["mix"] is None
    assert found["routing"]["auroc"] is None
    answers = fedpn.load(tmp_path / "run", client="hospital-1")(data.data[:4])
    assert len(answers) == 4


def test_an_archive_of_ones_own(tmp_path):
    digits = load_dataset("digits")
    path = tmp_path / "mine.npz"
    np.savez(path, images=digits.x[:, 0], labels=digits.y)
    mine = fedpn.run(
        tmp_path / "mine", **SMALL | {"dataset": str(path)}, train__batch=16, method__lr=0.02
    )
    named = fedpn.run(tmp_path / "named", **SMALL)
    assert mine["accuracy"] == named["accuracy"]


@pytest.mark.parametrize("router", ["dirichlet_entropy", "gaussian"])
def test_the_shared_encoder_embeds_each_row_once(router, monkeypatch):
    embedded = []
    original = Embedder._embed

    def counting(self, params, rows):
        embedded.append(rows)
        return original(self, params, rows)

    monkeypatch.setattr(Embedder, "_embed", counting)
    method = {"adapt_epochs": 0, "adapt_steps": 2}
    config = resolve([{"clients": 4, "method": method, "routing": {"router": router}}])
    setup = prepare(config)
    simulator = pipeline.simulate(config, setup)
    server = config.method.init(setup.model.task, setup.fresh)
    alone = [phase for phase in phases_of(config) if not phase.sums]
    told = simulator.visit(alone, server, Listener())
    views = [told[client]["evaluate"] for client in range(4)]
    evaluate(setup.federation, views, config.headline, config.router)
    rows = torch.cat(embedded)
    assert len(rows) == len(rows.unique())
    used = np.concatenate([setup.federation.rows(client) for client in range(4)])
    assert set(rows.tolist()) == set(used.tolist())


def test_training_never_sees_calibration_or_test_rows():
    """Poison all rows but the training ones: nothing that is trained may change."""
    settings = {"clients": 4, "rounds": 2, "train": {"steps": 2}, "routing": {"router": "gaussian"}}
    config = resolve([settings, {"method": {"adapt_epochs": 0, "adapt_steps": 2}}])
    dataset, federation = deal(config)

    def trained(x):
        setup = assemble(config, replace(dataset, x=x), federation)
        simulator = pipeline.simulate(config, setup)
        first = config.method.init(setup.model.task, setup.fresh)
        phases = [p for p in phases_of(config) if p.name in ("federate", "personalise", "route")]
        assert len(phases) == 3
        found = conduct(phases, simulator, first, Journal(None), Listener())
        members = [flatten(simulator.members[client]) for client in range(4)]
        return setup.blueprint, flatten(found.server), members

    poisoned = np.zeros_like(dataset.x)
    seen = np.concatenate(federation.train)
    poisoned[seen] = dataset.x[seen]
    (plan, server, members), (plan_too, server_too, members_too) = map(
        trained, (dataset.x, poisoned)
    )
    assert plan == plan_too, "inputs are normalised by training rows alone"
    for clean, dirty in zip([server, *members], [server_too, *members_too], strict=True):
        assert clean.keys() == dirty.keys()
        assert all(torch.equal(clean[n], dirty[n]) for n in clean)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_round_and_says_how_to_go_on(number, tmp_path):
    options = ["--rounds", "500", "--clients", "4", "--set", "train.steps=1"]
    out = tmp_path / "run"
    command = [sys.executable, "-m", "fedpn.cli.main", "run", "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, *options], env=environment, stderr=subprocess.PIPE, text=True
    )
    while not (out / "history.jsonl").exists() or not (out / "history.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "finishing the round" in said
    assert f"fedpn run --resume --out {out}" in said
    assert (out / "state.safetensors").exists()
    assert 0 < len(history(out)) < 500


def tracked(out, tracker):
    """A run in another process, so that no tracker's threads stay in this one."""
    code = (
        "import sys; from fedpn.cli.main import main;"
        f"sys.exit(main(['run', '--rounds', '3', '--clients', '4', '--out', {str(out)!r},"
        " '--dataset', 'digits', '--set', 'train.steps=1', '--set', 'method.adapt_epochs=0',"
        f" '--set', 'method.adapt_steps=1', '--{tracker}']))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def records(path):
    """The records of an event file: length, its checksum, content, checksum of that."""
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield content[12 : 12 + length]
        content = content[16 + length :]


def test_tensorboard_hears_of_every_round(tmp_path):
    tracked(tmp_path / "run", "tensorboard")
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    events = [Event.FromString(record) for record in records(file)]
    losses = [e.step for e in events if any(v.tag == "loss" for v in e.summary.value)]
    assert losses == [1, 2, 3]


def test_mlflow_hears_of_every_round(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed; `make trackers` tests it")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracked(tmp_path / "run", "mlflow")
    (losses,) = (tmp_path / "run").rglob("mlruns/*/*/metrics/loss")
    assert len(losses.read_text().splitlines()) == 3


def test_the_private_account_is_in_the_metrics(tmp_path):
    private = {"aggregation__rule": "private", "method__optimizer_state": "reset"}
    found = fedpn.run(tmp_path / "run", **SMALL, **private)["privacy"]
    assert (found["unit"], found["delta"]) == ("client", 1e-5) and found["epsilon"] > 0
    words = f"ε = {found['epsilon']:.3g} at δ = 1e-05 for each client"
    assert words in report.text([tmp_path / "run"])
    assert words in (tmp_path / "run" / "report.html").read_text()
    assert words in read_about(tmp_path / "run").provenance["privacy"]
    assert words in card(open_bundle(tmp_path / "run", 0))
    again = fedpn.run(tmp_path / "seed", **SMALL, **private, aggregation__repeatable=True)
    assert (
        again["privacy"]["epsilon"] is None and "nothing is promised" in again["privacy"]["words"]
    )
    with pytest.raises(fedpn.UserError, match="optimizer_state=reset"):
        fedpn.run(tmp_path / "other", **SMALL, aggregation__rule="private")


def test_a_run_does_not_go_on_with_other_data_or_lost_memories(tmp_path, capsys):
    digits = load_dataset("digits")
    path, out = tmp_path / "mine.npz", tmp_path / "run"
    np.savez(path, images=digits.x[:, 0], labels=digits.y)
    fedpn.run(out, **SMALL | {"dataset": str(path), "algorithm": "fedper"})
    resume = ["run", "--resume", "--out", str(out), "--rounds", "4"]
    memories = (out / "memories.bin").read_bytes()
    (out / "memories.bin").unlink()
    assert main(resume) == 2
    assert "what clients remember is lost" in capsys.readouterr().err
    (out / "memories.bin").write_bytes(memories)
    np.savez(path, images=digits.x[:, 0] // 2, labels=digits.y)
    assert main(resume) == 2
    assert "not those with which the run began" in capsys.readouterr().err


def test_data_that_name_their_clients_are_dealt_to_them(tmp_path):
    digits = load_dataset("digits")
    path = tmp_path / "mine.npz"
    owner = np.array(["north", "south", "west"])[np.arange(len(digits)) % 3]
    np.savez(path, images=digits.x[:, 0], labels=digits.y, client=owner)
    named = fedpn.run(tmp_path / "named", **SMALL | {"dataset": str(path)})
    assert named["clients"] == 3
    assert fedpn.load(tmp_path / "named", client="south").bundle.client == "south"
    dealt = fedpn.run(
        tmp_path / "dealt", **SMALL | {"dataset": str(path)}, data__partition="classes"
    )
    assert dealt["clients"] == 4
    with pytest.raises(fedpn.UserError, match="no client south"):
        fedpn.load(tmp_path / "dealt", client="south")


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "local", "method__lr": 1e9},
        {"algorithm": "fedavg", "method__lr": 1e9},
        {"method__adapt_lr": 1e30},
        {"faults__dropout": 1.0},
    ],
)
def test_divergence_is_told(settings, tmp_path):
    with pytest.raises(fedpn.UserError, match=r"diverged"):
        fedpn.run(tmp_path / "run", **(SMALL | {"rounds": 2} | settings))
    lines = (tmp_path / "run" / "history.jsonl").read_text()
    assert "NaN" not in lines


def opened(path):
    """A finished run's data, its clients' bundles, and its global model before all rows."""
    setup = prepare(resolve([read_toml(path / "config.toml")]))
    bundles = [open_bundle(path, client) for client in range(setup.federation.clients)]
    shared = bundles[0].shared
    return (
        setup,
        bundles,
        Observer(setup.model, shared, Embedder(setup.model, setup.data.x, shared)),
    )


def test_thresholds_are_those_of_the_calibration_rows(quick_run):
    """Taken again from the run's own models, on no other rows."""
    setup, bundles, observe = opened(quick_run)
    for client, bundle in enumerate(bundles):

        def again(rows, bundle=bundle):
            local, shared = observe.local(bundle.own, rows), observe.shared(rows)
            views = Views(local, shared, SCORES["log_density"](local))
            lesson = Lesson(views, setup.labels(rows), torch.ones(10))
            return asdict(Quantiles.calibrate(lesson, bundle.about.routing))

        members = read_members(quick_run)  # of the rules that are compared, the paper's
        kept = asdict(from_state("quantiles", members[client]["rule"]))
        assert again(setup.federation.calibration[client]) == pytest.approx(kept, rel=1e-6)
        assert again(setup.federation.train[client]) != pytest.approx(kept, rel=1e-6)


def test_clients_with_equal_rows_draw_their_own_batches():
    """In the personal stage; else a federation of twins would learn one model."""
    phase, rows = Adapt(FedPN(), 16, 0), np.arange(50)
    assert not np.array_equal(phase.plan(rows, 0), phase.plan(rows, 1))
    assert np.array_equal(phase.plan(rows, 1), phase.plan(rows, 1))
    assert not np.array_equal(phase.plan(rows, 1), Adapt(FedPN(), 16, 1).plan(rows, 1))


def test_the_router_foreign_scores_by_the_global_models_belief(tmp_path):
    """By hand from the run's own models: the mass on classes that the client has no rows of."""
    settings = {"clients": 4, "rounds": 3, "fedpn": {"adapt_steps": 20, "adapt_epochs": 0}}
    config = resolve([settings, {"routing": {"router": "foreign", "rule": "quantiles"}}])
    metrics = pipeline.run(config, tmp_path / "run")
    setup, bundles, observe = opened(tmp_path / "run")
    dataset, federation = setup.dataset, setup.federation
    scores = []
    for client in range(4):
        known, unknown = federation.ind(client), federation.ood(client)
        probs = observe.shared(np.concatenate([known, unknown])).probs.numpy()
        absent = np.setdiff1d(np.arange(10), dataset.y[federation.train[client]])
        mass = probs[:, absent].sum(1)
        held = observe.shared(federation.calibration[client]).probs.numpy()
        limit = np.sort(held[:, absent].sum(1))[int(np.ceil(0.9 * (len(held) + 1))) - 1]
        assert bundles[client].rule.epistemic == pytest.approx(limit, rel=1e-5)
        scores.append(roc_auc_score(np.repeat([0, 1], [len(known), len(unknown)]), mass))
    assert metrics["routing"]["auroc"] == pytest.approx(np.mean(scores), abs=1e-6)
    answers = fedpn.load(tmp_path / "run", 1)(dataset.x[federation.ood(1)][:50])
    probs = observe.shared(federation.ood(1)[:50]).probs.numpy()
    absent = np.setdiff1d(np.arange(10), dataset.y[federation.train[1]])
    told = [answer.uncertainty["epistemic"] for answer in answers]
    assert told == pytest.approx(probs[:, absent].sum(1), abs=1e-5)


ROUTERS = {"analytic": "auto", "fedpn": "auto", "ditto": "msp"}  # Ditto's clients own encoders


@pytest.mark.parametrize("algorithm", ROUTERS)
def test_what_is_judged_is_what_a_bundle_answers(algorithm, tmp_path):
    """Bayes' rule by its figures, and by its answers to the same rows with the same share."""
    config = resolve(
        [
            nest(
                {k.replace("__", "."): v for k, v in SMALL.items()}
                | {
                    "algorithm": algorithm,
                    "routing.rule": "bayes",
                    "routing.router": ROUTERS[algorithm],
                }
            )
        ]
    )
    metrics = fedpn.runs.pipeline.run(config, tmp_path / "run")
    setup = prepare(config)
    for client in range(4):
        rows = setup.federation.ind(client)
        answers = fedpn.load(tmp_path / "run", client)(setup.dataset.x[rows], own_share=0.5)
        right = [
            a.guess == setup.dataset.classes[k]
            for a, k in zip(answers, setup.dataset.y[rows], strict=True)
        ]
        told = metrics["per_client"][client]["accuracy"]["bayes"]["ind"]
        assert np.mean(right) == pytest.approx(told, abs=1e-9)
