"""The command line as people use it, mistakes included."""

import csv
import json
import shutil
import tomllib

import numpy as np
import pytest
from PIL import Image

import fedpn
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.settings import read_toml
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.routing.scores import POSTERIOR_SCORES

MEDIAN = ["--set", "aggregation.rule=median"]  # under which nothing can be borrowed
QUICK = [
    "--dataset",
    "digits",
    "--algorithm",
    "fedpn",
    "--rounds",
    "1",
    "--clients",
    "4",
    "--set",
    "train.steps=1",
    "--set",
    "method.adapt_steps=2",
]
QUICK += ["--set", "method.adapt_epochs=0"]
TABLE = {"algorithm": "fedpn", "clients": 2, "rounds": 10, "data__partition": "iid"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--dataset", "nosuch"], "nosuch"),
        (["run", "--dataset", "fashionmist"], "fashionmnist"),
        (["run", "--dataset", "no/such/folder"], "no/such/folder"),
        (["run", "--rounds", "-1"], "rounds is -1, but must be at least 0"),
        (["run", "--rounds", "two"], "rounds is 'two', but must be a whole number"),
        (["run", "--seed", "-3"], "seed is -3"),
        (["run", "--set", "fedpn.gama=1"], "did you mean 'fedpn.gamma'?"),
        (["run", "--set", "gamma"], "not of the form key=value"),
        (["run", "--clients", "100000"], "fewer --clients"),
        (["run", "--clients", "100", *MEDIAN], "calibration rows"),
        (["run", "missing.toml"], "no config file missing.toml"),
        (["run", "--algorithm", "fedpm"], "did you mean 'fedpn'?"),
        (["run", "--algorithm", "local", "--router", "msp"], "no global model"),
        (["run", "--algorithm", "fedbn"], "model.norm=batch"),
        (["run", "--router", "magic"], "choose one of"),
        (["run", "--resume"], "--resume needs --out"),
        (["run", "--device", "gpu"], "choose one of auto"),
        (["run", "--set", "engine.cohort=-1"], "at least 0"),
        (["run", "--set", "train.cohort=3"], "train.cohort is called engine.cohort now"),
        (["run", "--set", "routing.score=msp"], "routing.score is called routing.router now"),
        (["run", "--router", "entropy"], "dirichlet_entropy"),
        (["run", "--algorithm", "fedavg", "--router", "log_density"], "of posterior networks"),
        (["run", "--checkpoint-every", "0"], "must be at least 1"),
        (["run", "--wat"], "unrecognized arguments"),
        (["run", "mine.csv"], "there is no file or folder mine.csv"),
        (["run", "--algorithm", "fedavg", "--set", "fedpn.gamma=1"], "changes nothing"),
        (["run", *MEDIAN, "--set", "routing.outliers=0.001"], "raise routing.outliers"),
        (["run", "--risk", "0.05", *MEDIAN], "routing.risk needs counts"),
        (["run", "--risk", "2"], "must be at least 0 and below 1"),
        (["run", "--set", "data.features=['a']"], "is no table"),
        (["data", "check", "digits"], "fedpn data show digits"),
        (["run", "--algorithm", ":X"], "cannot import"),
        (["run", "--seed", "99999999999999999999999999"], "seed is"),
        (["run", "--algorithm", "local", "--set", "aggregation.rule=median"], "uploads nothing"),
        (["predict", "nowhere", "x.npz"], "nowhere is not a directory"),
        (["report", "nowhere"], "not a finished run"),
        (["export", "nowhere", "--out", "there"], "nowhere is not a directory"),
        (["data", "check", "nowhere.csv"], "nowhere.csv"),
        (["data", "show", "digits", "--out", "x.pdf"], ".png or .html"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDPN_DATA", "")
    assert main(arguments) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("fedpn: ")
    assert words in said
    assert "\n" not in said
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_a_run_that_diverges_says_what_to_do(tmp_path, capsys):
    settings = [*QUICK, "--set", "fedpn.lr=1e6", "--set", "train.steps=5"]
    assert main(["run", *settings, "--out", str(tmp_path / "run")]) == 2
    assert "lower the learning rate, 1e+06" in capsys.readouterr().err


def test_an_out_that_cannot_be_had(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["run", *QUICK, "--out", str(tmp_path / "file" / "run")]) == 2
    assert "is a file, not a directory" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("mine")
    assert main(["run", *QUICK, "--out", str(tmp_path / "full")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["precious"]


def test_debug_shows_where(capsys):
    assert main(["run", "--rounds", "two", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_failure_of_ours_is_status_1(monkeypatch, capsys):
    def broken(_):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr("fedpn.cli.commands.tables._algorithms", broken)
    assert main(["algorithms"]) == 1
    assert "failed: RuntimeError: a wheel came off" in capsys.readouterr().err


def test_version_and_help(capsys):
    for argument in ("--version", "--help"):
        with pytest.raises(SystemExit) as stop:
            main([argument])
        assert stop.value.code == 0
    assert f"fedpn {fedpn.__version__}" in capsys.readouterr().out


def test_run_ends_with_the_table_and_the_files(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", *QUICK, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "own model  federation  together" in said.out
    for row in ("a client's own inputs", "other clients' inputs", "strangers, refused"):
        assert f"\n{row}" in said.out
    assert len(said.out.partition("report, with")[0].strip().splitlines()) <= 15
    assert "federated rounds 1/1" in said.err
    names = {p.name for p in out.iterdir()}
    assert {"config.toml", "history.jsonl", "metrics.json", "timings.json", "report.html"} <= names
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["headline"] == "bayes"
    assert list(metrics["accuracy"]) == ["local", "global", "switch", "bayes", "oracle"]
    assert list(metrics["streams"]) == ["own", "foreign", "mixed", "strangers", "others"]
    assert set(json.loads((out / "timings.json").read_text())) == {
        "federate",
        "personalise",
        "evaluate",
        "report",
        "total",
    }


@pytest.mark.parametrize("name", [n for n in fedpn.ALGORITHMS if n != "fedpn"])
def test_every_algorithm_runs(name, tmp_path, capsys):
    norm = ["--set", "model.norm=batch"] if name == "fedbn" else []
    out = tmp_path / "run"
    assert main(["run", *QUICK, *norm, "--algorithm", name, "--out", str(out)]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["headline"] in metrics["accuracy"]
    rows = {"personal", "global"}
    if not fedpn.ALGORITHMS[name].trains:
        rows = {"local", "global", "bayes", "oracle"}
    assert metrics["accuracy"].keys() <= rows
    assert set(metrics["accuracy"][metrics["headline"]]) == {"ind", "ood", "mix"}


@pytest.mark.parametrize("router", ["msp", "energy", "softmax_entropy", "gaussian", "foreign"])
@pytest.mark.parametrize("name", ["fedavg", "fedrod", "fedpn"])
def test_any_method_can_be_routed(name, router, tmp_path):
    out, inputs = tmp_path / "run", tmp_path / "x.npz"
    assert main(["run", *QUICK, "--algorithm", name, "--router", router, "--out", str(out)]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["headline"] == "switch"
    assert metrics["routing"]["score"] == router
    assert 0 <= metrics["routing"]["auroc"] <= 1
    np.savez(inputs, images=load_dataset("digits").x[:3, 0])
    assert main(["predict", str(out), str(inputs), "--client", "1"]) == 0


@pytest.mark.parametrize("router", sorted(POSTERIOR_SCORES))
def test_posterior_networks_are_routed_by_all_their_scores(router, tmp_path):
    out, inputs = tmp_path / "run", tmp_path / "x.npz"
    assert main(["run", *QUICK, "--router", router, "--out", str(out)]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert (metrics["headline"], metrics["routing"]["score"]) == ("switch", router)
    np.savez(inputs, images=load_dataset("digits").x[:3, 0])
    assert main(["predict", str(out), str(inputs), "--client", "1"]) == 0


def test_a_posterior_network_may_do_without_a_switch(tmp_path):
    out = tmp_path / "run"
    assert main(["run", *QUICK, "--router", "none", "--out", str(out)]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert "routing" not in metrics
    assert metrics["accuracy"].keys() <= {"personal", "global"}


def test_a_router_of_ones_own_file(tmp_path):
    """It learns from training rows, decides, and is found again by whoever asks the run."""
    (tmp_path / "norms.py").write_text(OWN_ROUTER)
    out, spec = tmp_path / "run", f"{tmp_path / 'norms.py'}:Norms"
    assert main(["run", *QUICK, "--router", spec, "--out", str(out)]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert (metrics["headline"], metrics["routing"]["score"]) == ("switch", spec)
    predictor = fedpn.load(out, 1, trust=True)
    assert predictor.bundle.router["centre"].shape == (16,)
    answers = predictor(load_dataset("digits").x[:5, 0])
    assert all(answer.uncertainty["epistemic"] >= 0 for answer in answers)


OWN_ROUTER = """
from dataclasses import dataclass
from fedpn.routing.routers import Router

@dataclass(frozen=True)
class Norms(Router):
    def fit(self, local, shared, labels):
        return {"centre": local.z.mean(0)}

    def score(self, local, shared, state):
        return (local.z - state["centre"]).norm(dim=-1)
"""


def test_named_sets_run_under_their_presets(real_data, tmp_path):
    """What is typed goes over them."""
    out = tmp_path / "run"
    settings = [*QUICK, "--dataset", "mnist", "--set", "method.lr=0.005"]
    assert main(["run", *settings, "--out", str(out)]) == 0
    config = read_toml(out / "config.toml")
    assert (config["rounds"], config["clients"]) == (1, 4)
    assert config["fedpn"]["lr"] == 0.005
    assert config["routing"]["router"] == "log_density"
    assert main(["run", *QUICK, "--out", str(tmp_path / "digits")]) == 0
    config = read_toml(tmp_path / "digits" / "config.toml")
    assert (config["train"]["batch"], config["fedpn"]["lr"]) == (16, 0.02)


def test_settings_are_printed_as_a_config(capsys):
    assert main(["settings", "--dataset", "fashionmnist"]) == 0
    text = capsys.readouterr().out
    tree = tomllib.loads(text)
    assert tree["routing"]["router"] == "dirichlet_entropy"
    assert tree["routing"]["outliers"] == 0.3
    assert "outliers = 0.3  # the share of rows like its own that a client delegates" in text
    assert "beta = 0.3  # concentration, under `dirichlet`" in text
    assert main(["settings", "--dataset", "fashionmnist", "--algorithm", "ditto"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["routing"]["router"] == "auto"


def test_algorithms_are_listed_with_their_papers(capsys):
    assert main(["algorithms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, algorithm in fedpn.ALGORITHMS.items():
        (line,) = [x for x in lines if x.split()[0] == name]
        assert algorithm.citation in line


def test_report_of_several_seeds(quick_run, tmp_path, capsys):
    runs = [str(tmp_path / f"seed{seed}") for seed in (0, 1)]
    for seed, out in enumerate(runs):
        assert main(["run", *QUICK, "--seed", str(seed), "--out", out]) == 0
    capsys.readouterr()
    page = tmp_path / "both.html"
    assert main(["report", *runs, "--out", str(page)]) == 0
    assert "seeds 0, 1" in capsys.readouterr().out
    assert "standard error over seeds" in page.read_text()
    assert main(["report", runs[0], str(quick_run)]) == 2
    assert "not in its seed alone" in capsys.readouterr().err
    assert main(["report", runs[0], runs[0]]) == 2
    assert "same seed" in capsys.readouterr().err
    assert main(["report", runs[0], "--out", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    (tmp_path / "seed1" / "metrics.json").write_text("{}")
    assert main(["report", runs[1]]) == 2
    assert "damaged or was changed" in capsys.readouterr().err


def test_predict_from_an_archive_and_a_folder(quick_run, tmp_path, capsys):
    images = load_dataset("digits").x[:5, 0]
    np.savez(tmp_path / "in.npz", images=images)
    (tmp_path / "in").mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "in" / f"{i}.png")
    run = str(quick_run)
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    options = [run, "--client", "2"]
    assert main(["predict", *options, str(tmp_path / "in.npz"), "--out", str(table)]) == 0
    assert main(["predict", *options, str(tmp_path / "in"), "--out", str(lines)]) == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    answers = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [r["guess"] for r in rows] == [a["guess"] for a in answers]
    assert [a["input"] for a in answers] == [f"{i}.png" for i in range(5)]
    for answer in answers:
        assert (answer["label"] is None) == (answer["source"] == "nobody")
        assert sum(answer[f"p({c})"] for c in "0123456789") == pytest.approx(1, abs=1e-5)
        assert answer["reason"]
    capsys.readouterr()
    assert main(["predict", *options, str(tmp_path / "in.npz")]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split("\t")[:2] == ["input", "answer"]
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"images": np.zeros((2, 9, 9, 3), np.uint8)}, "shape"),
        ({"images": np.array(3)}, "shape"),
        ({"x": np.full((2, 30), "a")}, "type"),
        ({"images": np.full((2, 28, 28), "a")}, "type"),
        ({"pixels": np.zeros((2, 28, 28), np.uint8)}, "no array `images`"),
    ],
)
def test_predict_refuses_what_the_model_cannot_take(content, words, quick_run, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", **content)
    assert main(["predict", str(quick_run), str(tmp_path / "in.npz"), "--client", "0"]) == 2
    assert words in capsys.readouterr().err


def test_predict_from_a_table_finds_the_columns_by_name(tmp_path, capsys):
    """Whatever their order, and whatever else the table holds."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 120)
    x = rng.normal(0, 1, (240, 2)) + np.stack([4 * y, -8 * y], 1)
    rows = [f"{a},{b},{'sick' if k else 'well'}" for (a, b), k in zip(x, y, strict=True)]
    train, run = tmp_path / "train.csv", tmp_path / "run"
    train.write_text("\n".join(["pulse,pressure,label", *rows]))
    settings = ["--set", "data.partition=iid", "--set", "model.layers=2", "--clients", "2"]
    asked = ["--dataset", str(train), "--rounds", "10", "--out", str(run)]
    assert main(["run", *settings, *asked]) == 0
    for name, content in {
        "turned.csv": "patient;pressure;pulse\nann;-8;4\nben;0;0\n",
        "same.tsv": "pulse\tpressure\n4\t-8\n0\t0\n",
    }.items():
        (tmp_path / name).write_text(content)
        answers = tmp_path / "answers.csv"
        ask = ["predict", str(run), str(tmp_path / name), "--client", "0", "--out", str(answers)]
        ask += ["--overwrite"]
        assert main(ask) == 0
        with answers.open() as file:
            assert [row["guess"] for row in csv.DictReader(file)] == ["sick", "well"]
    (tmp_path / "new.csv").write_text("pulse\n4\n")
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--client", "0"]) == 2
    assert "lacks the features pressure" in capsys.readouterr().err


def test_predict_resizes_as_the_run_did(quick_run, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", images=np.zeros((2, 56, 42), np.uint8))
    assert main(["predict", str(quick_run), str(tmp_path / "in.npz"), "--client", "0"]) == 0
    assert "2 images of 42×56 were brought to 28×28" in capsys.readouterr().err


def test_a_data_frame_is_read_by_its_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng, path = np.random.default_rng(0), tmp_path / "t.csv"
    y = np.repeat([0, 1], 120)
    x = np.stack([rng.normal(0, 1, 240), rng.normal(8 * y, 1)], axis=1)
    rows = [f"{a},{b},{k}" for (a, b), k in zip(x, y, strict=True)]
    path.write_text("\n".join(["noise,signal,label", *rows]))
    fedpn.run(tmp_path / "run", dataset=str(path), **TABLE)
    predictor = fedpn.load(tmp_path / "run", client=0)
    answers = predictor(pandas.DataFrame({"signal": [8.0, 0.0], "noise": [0.0, 8.0]}))
    assert [a.guess for a in answers] == ["1", "0"]
    with pytest.raises(fedpn.core.errors.UserError, match="lacks the features signal"):
        predictor(pandas.DataFrame({"noise": np.zeros(2)}))


def test_one_model_for_all_needs_no_client(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", *QUICK, "--algorithm", "fedavg", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "own model" not in said and "federation" in said
    np.savez(tmp_path / "in.npz", images=load_dataset("digits").x[:3, 0])
    assert main(["predict", str(out), str(tmp_path / "in.npz")]) == 0
    assert "the one model of all clients always answers" in capsys.readouterr().out


def test_predict_wants_to_know_the_client(quick_run, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", images=np.zeros((1, 28, 28), np.uint8))
    assert main(["predict", str(quick_run), str(tmp_path / "in.npz")]) == 2
    assert "say which with --client" in capsys.readouterr().err
    assert main(["predict", str(quick_run), str(tmp_path / "in.npz"), "--client", "9"]) == 2
    assert "no client 9; it has 0, 1, 2, 3" in capsys.readouterr().err


def test_an_exported_client_answers_alike(quick_run, tmp_path):
    out = tmp_path / "client2"
    assert main(["export", str(quick_run), "--client", "2", "--out", str(out)]) == 0
    images = load_dataset("digits").x[:20, 0]
    whole, alone = fedpn.load(quick_run, client=2)(images), fedpn.load(out)(images)
    assert whole == alone
    assert alone[0].probabilities.keys() == set("0123456789")


def test_damage_is_noticed(quick_run, tmp_path):
    out = tmp_path / "client2"
    main(["export", str(quick_run), "--client", "2", "--out", str(out)])
    path = out / "clients.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(fedpn.UserError, match="checksum"):
        fedpn.load(out)


def test_a_bundle_of_another_format_is_refused_in_a_sentence(quick_run, tmp_path, capsys):
    """As the first version wrote them: thresholds in bundle.json, clients stacked."""
    old = tmp_path / "old"
    shutil.copytree(quick_run, old)
    tree = store.read_json(old / "bundle.json")
    assert tree["format"] == 5
    store.write_json(old / "bundle.json", tree | {"format": 1, "thresholds": []})
    for name in ("routers.safetensors", "rules.safetensors"):
        (old / name).unlink()
    store.seal(old)
    np.savez(tmp_path / "in.npz", images=load_dataset("digits").x[:1, 0])
    for command in (
        ["predict", str(old), str(tmp_path / "in.npz"), "--client", "0"],
        ["export", str(old), "--client", "0", "--out", str(tmp_path / "new")],
    ):
        assert main(command) == 2
        said = capsys.readouterr().err.strip()
        assert said.startswith(f"fedpn: {old} is of format 1, and this fedpn reads format 5")
        assert "train anew" in said
        assert "\n" not in said
    assert not (tmp_path / "new").exists()


def test_each_slot_of_a_client_has_its_file_and_each_tensor_its_client(tmp_path):
    out = tmp_path / "run"
    assert main(["run", *QUICK, "--router", "gaussian", "--out", str(out)]) == 0
    for file, some in (
        ("clients", "head.0.weight"),
        ("routers", "mean"),
        ("rules", "quantiles/epistemic"),
    ):
        names = store.tensor_names(out / f"{file}.safetensors")
        assert {name.partition("/")[0] for name in names} == {"0", "1", "2", "3"}
        assert {f"{client}/{some}" for client in range(4)} <= set(names)
    bundles = [fedpn.load(out, client).bundle for client in range(4)]
    assert len({bundle.rule for bundle in bundles}) == 4
    assert not bundles[0].router["mean"].equal(bundles[1].router["mean"])
    assert not any(name.startswith("encoder.") for name in bundles[0].own), "that is shared"


def test_data_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FEDPN_DATA", str(tmp_path))
    monkeypatch.setenv("FEDPN_CACHE", str(tmp_path))
    assert main(["data", "list"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main(["data", "get", "digits"]) == 0
    for name in ("deal.png", "deal.html"):
        assert (
            main(["data", "show", "digits", "--clients", "5", "--out", str(tmp_path / name)]) == 0
        )
        assert (tmp_path / name).stat().st_size > 1000
    assert "client" in capsys.readouterr().out
    table = tmp_path / "wine.csv"
    table.write_text("a,b,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(60)))
    assert main(["data", "check", str(table)]) == 0
    assert "60 rows" in capsys.readouterr().out


def test_the_list_names_subsets(real_data, capsys):
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert "70000" in said
    assert "cifar10:" in said
    assert "50000" in said


def test_fedpn_alone_says_what_to_do_next(quick_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "fedpn data check FILE" in said and "fedpn predict RUN INPUTS" in said
    shutil.copytree(quick_run, tmp_path / "runs" / "mine")
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "fedpn serve runs/mine" in said and "runs/mine/report.html" in said


def test_doctor_tells_what_is_in_use(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("torch", "device", "kernels", "extras"):
        assert f"\n{word}" in said


def test_a_cohort_may_be_auto(tmp_path):
    out = tmp_path / "run"
    assert main(["run", *QUICK, "--set", "engine.cohort=auto", "--out", str(out)]) == 0
    engine = json.loads((out / "engine.json").read_text())
    assert engine["cohort"] > 1
    assert engine["threads"] == 1


def test_predict_reads_pictures_as_training_does(tmp_path):
    """A photograph that says that it lies on its side is turned upright by both."""
    from fedpn.serving.inputs import read_inputs

    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[:10] = 255  # a bright band, on top before it is turned
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        for i in range(3):
            Image.fromarray(pixels).save(tmp_path / kind / f"{i}.jpg", exif=exif)
    trained = fedpn.open_dataset(str(tmp_path), image_size=20)
    names, asked, remark, _ = read_inputs(tmp_path, trained.shape)
    assert remark == "6 images of 40×40 were brought to 20×20"
    assert names[0] == "a/0.jpg"
    assert (asked == trained.x).all()
    assert asked[0, 0, :, -1].mean() > 200


def test_columns_of_a_table_are_named_as_for_a_check(tmp_path):
    """What `fedpn data check` takes, `fedpn run` takes as well."""
    table = tmp_path / "clinic.csv"
    rng = np.random.default_rng(0)
    lines = [
        f"{a:.3f},{b:.3f},{'ill' if a > 0 else 'well'},{'anna' if i % 2 else 'elisabeth'}"
        for i, (a, b) in enumerate(rng.normal(size=(120, 2)))
    ]
    table.write_text("pulse,pressure,state,site\n" + "\n".join(lines) + "\n")
    words = [str(table), "--label", "state", "--client", "site"]
    assert main(["data", "check", *words]) == 0
    out = tmp_path / "run"
    small = ["--algorithm", "analytic", "--set", "head.fourier=5", "--out", str(out)]
    assert main(["run", *words, *small]) == 0
    assert store.read_json(out / "metrics.json")["clients"] == 2


def test_half_an_option_is_none(capsys):
    assert main(["run", "--round", "3"]) == 2
    assert "--round" in capsys.readouterr().err


def test_a_file_that_is_none_is_told_without_a_table(quick_run, tmp_path, capsys):
    assert main(["predict", str(quick_run), str(tmp_path / "none.npz"), "--client", "0"]) == 2
    assert capsys.readouterr().out == ""


def test_on_a_terminal_answers_stand_in_columns(quick_run, tmp_path, capsys, monkeypatch):
    np.savez(tmp_path / "new.npz", images=fedpn.open_dataset("digits").x[:12, 0])
    words = ["predict", str(quick_run), str(tmp_path / "new.npz"), "--client", "0"]
    assert main(words) == 0
    plain = capsys.readouterr().out.splitlines()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(plain) == 13 and not any("\t" in line for line in lines)
    place = lines[0].index("confidence")
    shown = [line[place:].split()[0] for line in lines[1:]]
    assert shown == [line.split("\t")[2] for line in plain[1:]]


def test_answers_do_not_take_the_place_of_inputs(quick_run, tmp_path, capsys):
    inputs, other = tmp_path / "new.npz", tmp_path / "notes.csv"
    np.savez(inputs, images=fedpn.open_dataset("digits").x[:2, 0])
    other.write_text("mine")
    words = ["predict", str(quick_run), str(inputs), "--client", "0", "--out"]
    before = inputs.read_bytes()
    link = tmp_path / "same.csv"
    link.symlink_to(inputs)
    assert main([*words, str(link), "--overwrite"]) == 2
    assert "is the input itself" in capsys.readouterr().err
    assert main([*words, str(other)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (inputs.read_bytes(), other.read_text()) == (before, "mine")
    assert main([*words, str(other), "--overwrite"]) == 0
    assert other.read_text().startswith("input,")
