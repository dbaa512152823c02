"""More inputs than fit into memory: part by part, and the answers are the same."""

import csv

import numpy as np
import pytest
from PIL import Image

import fedpn
from fedpn.cli.main import main
from fedpn.serving.inputs import input_parts, read_inputs


@pytest.fixture(scope="module")
def run(closed_form_run):
    return closed_form_run


@pytest.fixture(scope="module")
def digits():
    return fedpn.open_dataset("digits").x[:300]


def test_parts_are_the_whole(digits, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", images=digits[:, 0])
    whole = read_inputs(tmp_path / "a.npz", (1, 28, 28))
    parts = list(input_parts(tmp_path / "a.npz", (1, 28, 28), rows=64))
    assert [len(part.rows) for part in parts] == [64, 64, 64, 64, 44]
    assert np.array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
    assert [name for part in parts for name in part.names] == whole.names == [*map(str, range(300))]
    shares = digits[:, 0] / 255  # only all of them tell that these are shares
    np.savez(tmp_path / "b.npz", images=shares)
    (alone,) = input_parts(tmp_path / "b.npz", (1, 28, 28), rows=64)
    assert np.array_equal(alone.rows, whole.rows)


def test_tables_come_in_parts_and_columns_pass_through(tmp_path):
    lines = ["patient,b,a"] + [f"p{i},{i},{i * 2}" for i in range(10)]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    parts = list(input_parts(tmp_path / "t.csv", (2,), ("a", "b"), ("patient",), rows=4))
    assert [len(part.rows) for part in parts] == [4, 4, 2]
    assert parts[1].rows[0].tolist() == [8.0, 4.0] and parts[1].others["patient"][0] == "p4"
    with pytest.raises(fedpn.UserError, match=r"line 12 .* has 2 values"):
        (tmp_path / "t.csv").write_text("\n".join([*lines, "x,1"]), encoding="utf-8")
        list(input_parts(tmp_path / "t.csv", (2,), ("a", "b"), rows=4))


def test_the_share_learned_part_by_part_is_that_of_all(run, digits, tmp_path, capsys, monkeypatch):
    np.savez(tmp_path / "a.npz", images=digits)
    told = {}
    for size in (32, 4096):
        monkeypatch.setattr("fedpn.serving.inputs.input_parts.__defaults__", ((), (), size, None))
        out = tmp_path / f"{size}.csv"
        command = ["predict", str(run), str(tmp_path / "a.npz"), "--client", "0"]
        assert main([*command, "--out", str(out)]) == 0
        assert "300 answers" in capsys.readouterr().out
        with out.open(encoding="utf-8") as file:
            told[size] = [row["guess"] for row in csv.DictReader(file)]
    same = np.mean([a == b for a, b in zip(told[32], told[4096], strict=True)])
    assert same > 0.97, "early parts know the share less well"


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "md"])
def test_every_form_of_answers(run, digits, tmp_path, ending):
    np.savez(tmp_path / "a.npz", images=digits[:7])
    out = tmp_path / f"answers.{ending}"
    command = ["predict", str(run), str(tmp_path / "a.npz"), "--client", "0", "--out", str(out)]
    assert main(command) == 0
    if ending == "parquet":
        from pyarrow import parquet

        table = parquet.read_table(out)
        assert table.num_rows == 7 and "measured" not in table.column_names
    else:
        lines = out.read_text(encoding="utf-8").splitlines()
        assert len(lines) == {"csv": 8, "jsonl": 7, "md": 9}[ending]


def test_one_picture_and_pictures_from_python(run, digits, tmp_path, capsys):
    picture = Image.fromarray(digits[3, 0])
    picture.save(tmp_path / "a.png")
    assert main(["predict", str(run), str(tmp_path / "a.png"), "--client", "0"]) == 0
    assert "a.png" in capsys.readouterr().out
    predictor = fedpn.load(run, "0")
    content = (tmp_path / "a.png").read_bytes()
    forms = [picture, tmp_path / "a.png", str(tmp_path / "a.png"), content, digits[3:4]]
    found = {predictor(form, own_share=0.5)[0].guess for form in forms}
    assert len(found) == 1
    assert predictor.predict([picture, picture], 0.5)[0] == predictor(picture, 0.5)[0].label
    assert predictor.predict_proba(digits[:4]).sum(1) == pytest.approx(1, abs=1e-5)
    assert predictor.predict_proba(digits[:0]).shape == (0, 10)
    assert len(predictor(digits[:4]).table()) == 4
    with pytest.raises(fedpn.UserError, match="not a picture"):
        predictor(b"nonsense")


def test_nothing_in_nothing_out(run, digits, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", images=digits[:0])
    command = ["predict", str(run), str(tmp_path / "a.npz"), "--client", "0"]
    assert main([*command, "--out", str(tmp_path / "a.csv")]) == 0
    assert "0 answers" in capsys.readouterr().out


def test_a_column_that_is_empty_at_first_may_hold_texts_later(tmp_path):
    from pyarrow import parquet

    from fedpn.core.rows import GROUP, write_rows

    rows = [{"label": None, "n": i} for i in range(GROUP)] + [{"label": "7", "n": GROUP}]
    assert write_rows(tmp_path / "a.parquet", iter(rows)) == GROUP + 1
    assert parquet.read_table(tmp_path / "a.parquet")["label"][GROUP].as_py() == "7"


def test_columns_that_pass_through_do_not_hide_answers(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = ["a,b,label"] + [
        f"{v:.2f},{w:.2f},{i % 2}" for i, (v, w) in enumerate(rng.normal(size=(120, 2)))
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    fedpn.run(tmp_path / "run", dataset=str(tmp_path / "t.csv"), algorithm="analytic", clients=2)
    command = ["predict", str(tmp_path / "run"), str(tmp_path / "t.csv"), "--client", "0"]
    assert main([*command, "--id", "label"]) == 2
    assert "answers have a column of that name" in capsys.readouterr().err
    assert main([*command, "--id", "a", "--out", str(tmp_path / "a.jsonl")]) == 0


def test_pictures_from_pillow_are_read_as_files_are(run, tmp_path):
    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[:10] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif)
    predictor = fedpn.load(run, "0")
    with Image.open(tmp_path / "a.jpg") as picture:
        found = predictor(picture, 0.5)[0].probabilities
    assert found == pytest.approx(predictor(tmp_path / "a.jpg", 0.5)[0].probabilities, abs=0.02)
    assert predictor(Image.new("CMYK", (30, 30)))[0].source == "nobody"
