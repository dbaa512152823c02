"""Mistakes that people make, and attacks: each ends in one sentence that says what to do.

A case is a command line and words of its message. `RUN` and `FOLDER` are a finished run and an
exported folder, the other files are made beforehand.
"""

import shutil

import numpy as np
import pytest
from PIL import Image

from fedpn.cli.main import main
from fedpn.core import store
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.serving.export import export


@pytest.fixture(scope="module")
def place(tmp_path_factory, quick_run):
    """A folder with good and bad files of all kinds."""
    place = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(quick_run, place / "RUN")
    export(quick_run, 0, place / "FOLDER")
    digits = load_dataset("digits")
    np.savez(place / "good.npz", images=digits.x[:20, 0], labels=digits.y[:20])
    np.savez(place / "unlabelled.npz", images=digits.x[:20, 0])
    np.savez(place / "crooked.npz", images=digits.x[:20, 0], labels=digits.y[:19])
    np.savez(place / "flat.npz", images=np.zeros((20, 5)), labels=digits.y[:20])
    np.savez(place / "other.npz", images=np.zeros((20, 9, 9), np.uint8))
    np.savez(place / "nan.npz", x=np.full((20, 3), np.nan), y=digits.y[:20])
    np.savez(place / "pickled.npz", images=np.array([{"a": 1}], dtype=object), labels=[0])
    texts = {
        "empty.csv": "",
        "head.csv": "a,b,label\n",
        "good.csv": "a,b,label\n" + "1,2,x\n3,4,y\n" * 30,
        "twice.csv": "a,a,label\n" + "1,2,x\n3,4,y\n" * 30,
        "ragged.csv": "a,b,label\n1,2,x\n3,y\n" * 5,
        "nolabel.csv": "a,b\n1,2\n3,4\n",
        "oneclass.csv": "a,b,label\n" + "1,2,x\n" * 30,
        "binary.csv": "a\0b,label\n1,x\n",
        "bad.toml": "rounds = [",
        "deep.toml": "a = " + "[" * 5000,
        "unknown.toml": "rouns = 3",
        "section.toml": "train = 3",
        "bad.npz": "not an archive",
        "bad.parquet": "not parquet",
        "text.txt": "hello",
        "no_method.py": "class Mine:\n    pass\nraise_at = 1\n",
        "broken.py": "def x(:\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    (place / "latin.csv").write_bytes("a,b,label\n1,2,é\n".encode("latin-1"))
    (place / "void").mkdir()
    (place / "pictures" / "cat").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(place / "pictures" / "cat" / "a.png")
    (place / "fake" / "cat").mkdir(parents=True)
    (place / "fake" / "cat" / "a.png").write_text("no picture")
    (place / "FULL").mkdir()
    (place / "FULL" / "thesis.txt").write_text("dear")
    cut = place / "CUT"
    shutil.copytree(quick_run, cut)
    (cut / "shared.safetensors").write_bytes(b"x")
    old = place / "OLD"
    shutil.copytree(place / "FOLDER", old)
    tree = store.read_json(old / "bundle.json") | {"format": 1}
    store.write_json(old / "bundle.json", tree)
    store.seal(old)
    return place


SETTINGS = {
    "rounds=x": "rounds is 'x', but must be a whole number",
    "rounds=1.5": "rounds is 1.5, but must be a whole number",
    "rounds=-1": "rounds is -1, but must be at least 0",
    "rounds=10000000000": "rounds is 10000000000, but must be at most 1000000",
    "clients=0": "clients is 0, but must be at least 1",
    "clients=nan": "clients is nan, but must be a whole number",
    "seed=-1": "seed is -1, but must be at least 0",
    "rouns=3": "unknown setting 'rouns'; did you mean 'rounds'?",
    "train.batch=0": "train.batch is 0, but must be at least 1",
    "train.batch=99999999999": "train.batch is 99999999999, but must be at most 1000000",
    "train.join=0": "train.join is 0.0, but must be above 0 and at most 1",
    "train.join=inf": "train.join is inf, but must be a number",
    "train.steps=0": "train.steps and train.epochs are both 0",
    "train=3": "train is a section of settings, not 3",
    "model.dim=100000": "model.dim is 100000, but must be at most 65536",
    "model.layers=1000000": "model.layers is 1000000, but must be at most 1000",
    "model.encoder=lenet": "model.encoder is 'lenet'; did you mean 'lenet5'?",
    "model.density=flow": "model.density is 'flow'",
    "model.norm=layer": "model.norm is 'layer'",
    "model.pretrained=nowhere.safetensors": "nowhere.safetensors",
    "data.partition=random": "data.partition is 'random'",
    "data.beta=0": "data.beta is 0.0, but must be above 0",
    "data.image_size=100000": "data.image_size is 100000, but must be at most 4096",
    "data.without=a": "data.without is 'a', but must be a list",
    "data.show=maybe": "data.show is 'maybe'",
    "method.lr=-1": "fedpn.lr is -1.0, but must be above 0",
    "method.lr=1e999": "fedpn.lr is inf, but must be a number",
    "method.lr=true": "fedpn.lr is True, but must be a number",
    "fedprox.mu=1": "changes nothing, for the algorithm is fedpn",
    "head=ridg": "head.kind is 'ridg'; did you mean 'ridge'?",
    "head.kind=no_method.py:Nobody": "cannot import the head 'no_method.py:Nobody'",
    "routing.rule=bays": "routing.rule is 'bays'; did you mean 'bayes'?",
    "routing.router=mps": "routing.router is 'mps'; did you mean 'msp'?",
    "routing.risk=2": "routing.risk is 2.0, but must be",
    "routing.outliers=2": "routing.outliers is 2.0, but must be above 0 and at most 1",
    "aggregation.rule=krumm": "aggregation.rule is 'krumm'; did you mean 'krum'?",
    "aggregation.delta=0": "aggregation.delta is 0.0, but must be above 0 and below 1",
    "aggregation.rule=private": "use --set method.optimizer_state=reset",
    "faults.dropout=2": "faults.dropout is 2.0, but must be from 0 to 1",
    "faults.attack=bribe": "faults.attack is 'bribe'",
    "engine.device=gpu": "engine.device is 'gpu'; choose one of auto, cuda, mps, cpu",
    "engine.threads=100000": "engine.threads is 100000, but must be at most 1024",
    "train.cohort=1": "train.cohort is called engine.cohort now",
    "nothing": "--set 'nothing' is not of the form key=value",
    "=3": "--set '=3' is not of the form key=value",
}
RUNS = {
    "digits --set head.noise=1": "head.noise protects the sums of pictures' patches alone",
    "--rounds many": "rounds is 'many', but must be a whole number",
    "--algorithm fedpm": "fedpm",
    "--algorithm no_method.py:Mine": "is not a frozen dataclass below fedpn.FedAvg",
    "--algorithm broken.py:X": "cannot import the algorithm 'broken.py:X'",
    "--algorithm nowhere.py:X": "cannot import the algorithm 'nowhere.py:X'",
    "--dataset mnits": "mnits",
    "--dataset nowhere/x.csv": "nowhere/x.csv",
    "--dataset empty.csv": "empty.csv is empty",
    "--dataset head.csv": "head.csv",
    "--dataset twice.csv": "twice.csv",
    "--dataset ragged.csv": "ragged.csv",
    "--dataset nolabel.csv": "label",
    "--dataset oneclass.csv": "class",
    "--dataset binary.csv": "binary.csv",
    "--dataset latin.csv": "latin.csv",
    "--dataset bad.npz": "bad.npz",
    "--dataset bad.parquet": "bad.parquet",
    "--dataset pickled.npz": "pickled.npz",
    "--dataset crooked.npz": "crooked.npz",
    "--dataset unlabelled.npz": "unlabelled.npz",
    "--dataset nan.npz": "nan.npz",
    "--dataset ./void": "void",
    "--dataset ./fake": "fake holds 1 folders with pictures; it needs one for each class",
    "--dataset ./pictures": "class",
    "--dataset text.txt": "text.txt",
    "--dataset good.csv --set data.label=z": "'z'",
    "--dataset good.csv --set data.client=z": "'z'",
    '--dataset good.csv --set data.features=["a","z"]': "z",
    "bad.toml": "cannot read the config bad.toml",
    "deep.toml": "cannot read the config deep.toml",
    "unknown.toml": "unknown setting 'rouns'",
    "section.toml": "train is a section of settings, not 3",
    "nowhere.toml": "no config file nowhere.toml",
    "good.csv --dataset digits": "data are named twice: good.csv and --dataset digits",
    "void.toml": "no config file void.toml",
    "--out FULL --overwrite": "FULL holds no run, so that nothing in it is replaced",
    "--out FULL": "--out FULL is not empty; choose another",
    "--out text.txt": "text.txt is a file, not a directory",
    "--out text.txt/run": "text.txt is a file, not a directory",
    "--resume": "--resume needs --out",
    "--resume --out nowhere": "nowhere holds no run (it has no config.toml)",
    "--resume --out FULL": "FULL holds no run (it has no config.toml)",
    "--resume --out RUN --rounds 1": "2 rounds are done; --rounds 2 ends the run there",
    "--resume --out RUN --seed 7": "seed was 0 and is now 7; only rounds may change",
    "--checkpoint-every 0": "--checkpoint-every is 0, but must be at least 1",
    "--risk high": "routing.risk is 'high', but must be a number",
    "--router mps": "routing.router is 'mps'; did you mean 'msp'?",
    "--colour red": "unrecognized arguments: --colour",
}
OTHERS = {
    "predict": "the following arguments are required: RUN, INPUT",
    "predict RUN good.npz": "RUN holds 4 clients: say which with --client",
    "predict RUN good.npz --client 9": "RUN has no client 9; it has 0, 1, 2, 3",
    "predict nowhere good.npz": "nowhere is not a directory",
    "predict text.txt good.npz": "text.txt is not a directory",
    "predict void good.npz": "void",
    "predict FULL good.npz": "FULL",
    "predict CUT good.npz --client 0": "shared.safetensors is damaged or was changed",
    "predict OLD good.npz": "is of format 1, and this fedpn reads format",
    "predict FOLDER nowhere.npz": "nowhere.npz",
    "predict FOLDER flat.npz": "inputs have the shape (20, 5); this model takes [N, H, W]",
    "predict FOLDER good.csv": "good.csv",
    "predict FOLDER bad.npz": "bad.npz",
    "predict FOLDER pickled.npz": "pickled.npz",
    "predict FOLDER good.npz --out answers.docx": "the name must end in .csv, .jsonl",
    "predict FOLDER good.npz --out nowhere/a.csv": "there is no directory nowhere",
    "predict FOLDER good.npz --own-share most": "use auto or a number from 0 to 1",
    "predict FOLDER good.npz --own-share 7": "must be from 0 to 1",
    "export RUN --out x": "RUN holds 4 clients: say which with --client",
    "export RUN --client 0 --out FULL": "--out FULL is not empty; choose another",
    "export RUN --client 0": "the following arguments are required: --out",
    "report nowhere": "nowhere",
    "report void": "void",
    "report RUN RUN": "two of these runs have the same seed",
    "compare nowhere": "nowhere",
    "compare": "required",
    "data show nowhere.csv": "nowhere.csv",
    "data check empty.csv": "empty.csv is empty",
    "data get mnits": "mnits",
    "score FOLDER unlabelled.npz": "unlabelled.npz",
    "calibrate FOLDER unlabelled.npz --out z": "unlabelled.npz",
    "join nowhere good.npz --client x --out z": "nowhere",
    "forget RUN --client 0 --out y": "has a head that was trained, which cannot forget",
    "serve nowhere": "nowhere",
    "run digits --client 5": "digits is no table; --clients says how many there are",
    "run digits --label 5": "data.label names a column, but digits is no table",
    "serve FOLDER --keep-inputs --decisions none": "--keep-inputs needs a place",
    "serve FOLDER --port 99999999": "--port is 99999999, but must be from 1 to 65535",
    "serve FOLDER --host 0.0.0.0": "set $FEDPN_TOKEN to a long secret",
    "frobnicate": "invalid choice: 'frobnicate'",
}
CASES = [("run --set " + words, told) for words, told in SETTINGS.items()]
CASES += [(f"run {words}", told) for words, told in RUNS.items()]
CASES += list(OTHERS.items())


@pytest.mark.parametrize(("words", "told"), CASES, ids=[words for words, _ in CASES])
def test_a_mistake_is_told_in_a_sentence(words, told, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(words.split(" ") if words else []) == 2
    error = capsys.readouterr().err
    assert told in error
    last = error.splitlines()[-1]
    assert last.startswith("fedpn: ") and len(last) > 20
    assert "Traceback" not in error and "\x1b" not in error
