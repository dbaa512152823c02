"""The report of a run: on the terminal, as a page, and of files that are not what was written."""

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.reporting import charts, report
from fedpn.reporting.drawing import Frame

NAMES = [
    "$x_",
    "a$b^",
    "<script>alert(1)</script>",
    "\x1b[31m",
    "#111111",
    "名前",
    "\ud800",
    "--><b>",
]


@pytest.fixture
def run(quick_run, tmp_path):
    """A finished run that a test may change."""
    return shutil.copytree(quick_run, tmp_path / "run")


def change(run, file, edit):
    """Edits a JSON file of a run, and seals the run again."""
    tree = json.loads((run / file).read_text())
    edit(tree)
    (run / file).write_text(json.dumps(tree))
    store.seal(run)


def page_of(run):
    report.write_page([run], run / "page.html")
    return (run / "page.html").read_text(encoding="utf-8")


class Tags(HTMLParser):
    """All tags of a page, with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    @property
    def is_live(self):
        """Whether anything but the page's own script would be run, or fetched."""
        names = {name for name, _ in self.attributes}
        scripts = self.tags.count("script") + self.tags.count("style")
        places = [value for name, value in self.attributes if name in ("src", "href")]
        return (
            scripts != 2
            or any(name.startswith("on") for name in names)
            or not names.isdisjoint({"style", "srcdoc", "xlink:href", "action", "formaction"})
            or not all(place.startswith(("#", "data:image/png;base64,")) for place in places)
        )


def rename(run):
    """Gives classes and clients the names of a joker."""
    names = [NAMES[i % len(NAMES)] for i in range(10)]

    def edit(tree):
        tree |= {"classes": names, "clients": NAMES[: len(tree["clients"])]}
        tree["provenance"] |= {"dataset": "<b>my</b> $data_", "note": "\x1b]0;<i>"}

    change(run, "bundle.json", edit)
    return run


def test_the_page_is_the_same_twice_and_names_its_files(run):
    page = page_of(run)
    assert page_of(run) == page
    for name in report.FILES:
        assert name in page
    assert "config.toml" in report.FILES
    assert page.count('role="img"') == 9
    assert page.startswith("<!doctype html>")


def test_settings_that_were_changed_are_noticed(run, capsys):
    with (run / "config.toml").open("a") as file:
        file.write("\n")
    assert main(["report", str(run)]) == 2
    assert "config.toml is damaged or was changed" in capsys.readouterr().err


def test_names_are_shown_as_they_are(run, capsys):
    page = page_of(rename(run))
    assert not Tags(page).is_live
    assert not any(text in page for text in ("\x1b", "<b>my", "<i>", "--><b>"))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\\x1b[31m" in page
    assert ">#111111<" in page  # the colour of the ink is replaced in tags alone
    assert "$x_" in page and "a$b^" in page and "名前" in page
    text = report.text([run])
    assert text.startswith("fedpn on <b>my</b> $data_: 4 clients")  # what the bundle calls them
    assert main(["report", str(run)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_answer_is_shown_as_it_is(run, tmp_path, capsys):
    names = [f"\x1b[3{i}m" for i in range(10)]
    change(run, "bundle.json", lambda tree: tree.update(classes=names))
    np.savez(tmp_path / "in.npz", images=load_dataset("digits").x[:40, 0])
    assert main(["predict", str(run), str(tmp_path / "in.npz"), "--client", "0"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[3" in out
    assert {line.count("\t") for line in out.splitlines()} == {5}


EVIL = '"><script>alert(1)</script><img src=x onerror="alert(2)">'


def _card(name, value):
    return "figures.json", lambda tree: tree["gallery"][0].update({name: value})


def _figure(name, value):
    return "figures.json", lambda tree: tree.update({name: value})


def _metric(name, value):
    return "metrics.json", lambda tree: tree.update({name: value})


CRAFTED = {
    "outcome": _card("outcome", EVIL),
    "confidence": _card("confidence", EVIL),
    "confidence-nan": _card("confidence", float("nan")),
    "confidence-true": _card("confidence", True),
    "class-range": _card("answer", 10),
    "class-negative": _card("label", -1),
    "client-range": _card("client", 4),
    "reason": _card("reason", {"a": EVIL}),
    "gallery": _figure("gallery", EVIL),
    "no-cards": _figure("gallery", []),
    "ownership": _figure("ownership", [[1, 2]]),
    "ownership-text": _figure("ownership", [[EVIL] * 10] * 4),
    "histogram": _figure("histogram", {"edges": [0, 1], "ind": [1, 2], "ood": [1]}),
    "histogram-empty": _figure("histogram", {"edges": [], "ind": [], "ood": []}),
    "histogram-infinite": _figure(
        "histogram", {"edges": [0, float("inf")], "ind": [1], "ood": [1]}
    ),
    "histogram-huge": _figure("histogram", {"edges": [0, 10**400], "ind": [1], "ood": [1]}),
    "reliability": _figure("reliability", {"share": [1], "confidence": [1], "accuracy": [EVIL]}),
    "risk": _figure("risk_coverage", {"local": [EVIL]}),
    "outcomes": _figure("outcomes", {"ind": [[1.0]] * 4, "ood": [[1.0]] * 4}),
    "headline": _metric("headline", EVIL),
    "seed": _metric("seed", EVIL),
    "accuracy": _metric("accuracy", {"local": {"ind": EVIL}}),
    "accuracy-none": _metric("accuracy", {}),
    "spread": _metric("spread", None),
    "clients": _metric("per_client", [{"client": 99}]),
    "routing": _metric("routing", "no"),
    "classes": ("bundle.json", lambda tree: tree.update(classes=[])),
    "provenance": ("bundle.json", lambda tree: tree["provenance"].update(dataset=3)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_refused_in_a_sentence(run, name, capsys):
    file, edit = CRAFTED[name]
    change(run, file, edit)
    assert main(["report", str(run), "--out", str(run / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "is damaged" in error and error.count("\n") == 1
    assert len(error) < 400
    assert not (run / "page.html").exists()


@pytest.mark.parametrize("content", ["", "[", "[]", "null", "3", "[" * 100_000, '{"a": "\xff"}'])
@pytest.mark.parametrize("file", ["metrics.json", "figures.json", "bundle.json", "history.jsonl"])
def test_a_file_that_is_something_else(run, file, content, capsys):
    if file == "history.jsonl" and not content:
        return  # no rounds
    (run / file).write_bytes(content.encode("latin-1"))
    store.seal(run)
    assert main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert file in error and error.count("\n") == 1


def test_settings_that_cannot_be_read(run):
    for content in ("a = [", "seed = 0", "algorithm = 3"):
        (run / "config.toml").write_text(content)
        with pytest.raises(UserError, match=r"config.toml is damaged"):
            report.text([run])


def test_pictures_that_do_not_fit_their_cards(run):
    for images in (torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(3, 1, 8, 8)):
        save_file({"images": images}, run / "gallery.safetensors")
        with pytest.raises(UserError, match=r"gallery.safetensors is damaged"):
            page_of(run)
    (run / "gallery.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"gallery.safetensors is damaged"):
        page_of(run)


def test_crafted_texts_are_no_markup(run):
    def edit(tree):
        for card in tree["gallery"]:
            card["reason"] = EVIL
        tree["risk_coverage"][EVIL] = [0.0, 0.1]

    change(run, "figures.json", edit)
    change(run, "metrics.json", lambda tree: tree.update(algorithm=EVIL))
    page = page_of(run)
    assert not Tags(page).is_live
    assert page.count("<script") == 1
    assert EVIL not in page


def test_every_way_of_answering_is_shown(run):
    """`bayes` has its colour; one that nobody has heard of has one too."""

    def edit(tree):
        for part in (tree, tree["spread"]["std"], tree["spread"]["worst"], *tree["per_client"]):
            rows = part.get("accuracy", part)
            rows |= {"bayes": rows["global"], "new": rows["local"]}

    change(run, "metrics.json", edit)
    change(run, "figures.json", lambda t: t["risk_coverage"].update(bayes=[0, 1], new=[1, 0]))
    page = page_of(run)
    assert '<th scope="row">bayes<small>' in page and '<th scope="row">new</th>' in page
    assert "bayes Mix, %" in page and "new Mix, %" in page
    assert 'class="line bayes"' in page and 'class="line other"' in page
    assert "bayes" in report.text([run])


def test_a_curve_far_above_the_others_leaves_the_chart_and_that_is_said():
    low, high = [0.0, 0.0, 0.04], [0.0, 0.2, 0.5]
    found = charts.surest({"local": high, "bayes": low})
    assert "The axis ends at 5.0 %: local goes on, to 50.0 %." in found.caption
    (picture,) = found.pictures
    assert picture.count("<polyline") == 2
    frame = Frame(height=300)
    heights = [float(y) for y in re.findall(r"[\d.]+,([\d.]+)", picture)]
    assert min(heights) == frame.top
    assert [row.cells[1] for row in found.table.rows][-1] == "50.0"
    assert "The axis ends" not in charts.surest({"local": high, "bayes": [0.0, 0.1, 0.2]}).caption


def test_axes_are_named_and_shares_are_in_percent(run):
    page = page_of(run)
    for name in ("client", "class", "true class", "answer", "share of inputs, %"):
        assert re.search(rf'class="axis"[^>]*>{name}</text>', page), name
    for name in ("share of rows, %", "confidence, %", "share wrong, %", "accuracy, %"):
        assert f">{name}</text>" in page, name


def test_a_run_that_knows_little(run):
    """As the server of a deployment: no figures but curves, no images, unknown classes."""

    def empty(tree):
        tree.clear()
        tree |= {"ownership": None, "reliability": None, "risk_coverage": None, "gallery": []}

    change(run, "figures.json", empty)
    change(run, "metrics.json", lambda t: [c.update(classes=None) for c in t["per_client"]])
    change(run, "metrics.json", lambda t: t.pop("by_class"))
    save_file({}, run / "gallery.safetensors")
    page = page_of(run)
    assert page.count('role="img"') == 2  # loss, accuracy
    assert "Some inputs" not in page and "Class by class" not in page
