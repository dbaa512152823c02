"""Every command and every piece of Python in the docs is done, small; or it says why it is not."""

import argparse
import doctest
import http.client
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import fedpn
from blocks import LEFT, ROOT, blocks_of, pages
from fedpn.cli.main import _parser, main
from shell import calls
from world import Kept, furnish, named_set, small, typed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
BLOCKS = {page: list(blocks_of(page, text)) for page, text in sorted(pages().items())}
PAGES = [
    p for p, blocks in BLOCKS.items() if any(b.kind != "text" and not b.why_not for b in blocks)
]


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="session")
def sets(tmp_path_factory):
    """Named sets, small."""
    place = tmp_path_factory.mktemp("sets")
    for name in ("mnist", "fashionmnist"):
        named_set(place / f"{name}.npz")
    return place


class Reader:
    """Somebody who follows a page from its top to its end."""

    def __init__(self, place, kept, monkeypatch):
        self.place, self.kept, self.patch = place, kept, monkeypatch
        self.names = {"__name__": "page"}
        self.really_run, self.really_sweep = fedpn.run, fedpn.sweep
        self.served = None

    def run(self, out, **settings):
        """`fedpn.run`, small; its report is drawn elsewhere."""
        out, chosen = Path(out), settings | small(settings)
        with self.patch.context() as here:
            here.setattr("fedpn.reporting.report.write_page", _page)
            if _is_own(chosen):
                return self.really_run(out, overwrite=True, **chosen)
            key = repr(sorted(chosen.items()))
            self.kept(key, out, lambda: self.really_run(out, overwrite=True, **chosen))
        return fedpn.open(out)

    def sweep(self, out, over, seeds=3, **settings):
        """`fedpn.sweep` of one cell, in this process, for the data are in memory."""
        data = fedpn.open_dataset("digits")
        chosen = settings | {"dataset": (data.x[:600, 0], data.y[:600])}
        first = {key: values[:1] for key, values in over.items()}
        return self.really_sweep(out, over=first, seeds=1, **chosen | small(chosen))

    def follow(self, block):
        furnish(self.place, block.body, self.run)
        if block.title:
            (self.place / block.title).write_text(block.body, encoding="utf-8")
        elif block.kind == "shell":
            for name, *words in calls(block.body, self.place):
                DOES[name](self, words)
        elif ">>>" in block.body:
            self.examples(block)
        else:
            exec(compile(block.body, str(block), "exec"), self.names)

    def examples(self, block):
        test = doctest.DocTestParser().get_doctest(block.body, self.names, str(block), None, 0)
        told = []
        doctest.DocTestRunner().run(test, out=told.append, clear_globs=False)
        assert not told, "".join(told)


def _is_own(settings):
    """Whether settings name code or files of the page, which may differ from page to page."""
    return any(
        not isinstance(v, str | int | float | list) or ".py:" in str(v) for v in settings.values()
    )


def _page(paths, out):
    out.write_text("<p>Reports are drawn in tests/reporting.</p>", encoding="utf-8")


def does_fedpn(reader, words):
    words = [w for word in words for w in _expanded(reader.place, word)]
    options = _parser().parse_args(words)
    with reader.patch.context() as here:
        if words[0] != "report":
            here.setattr("fedpn.reporting.report.write_page", _page)
        if words[0] == "run":
            run_small(reader, options, words)
        elif words[0] == "sweep":
            _done(
                [
                    *_first_values(words),
                    *typed(small(_named(options))),
                    "--seeds",
                    "1",
                    "--jobs",
                    "1",
                ]
            )
        elif words[0] == "serve":
            serve(reader, options, words)
        else:
            _done(words)


def run_small(reader, options, words):
    """`fedpn run`, small; each line of a page is an example of its own and may write anew."""
    if int(options.seed or 0) > 1:
        return  # two seeds stand for all
    out = reader.place / (options.out or "runs/" + _default(options))
    quick = [*words, *typed(small(_named(options))), "--overwrite", "--out", str(out)]
    if re.search(r"\.py:|\.csv|scans", " ".join(words)):
        _done(quick)
    else:
        reader.kept(repr(sorted(quick[:-1])), out, lambda: _done(quick))


def _done(words):
    assert main(words) == 0, f"fedpn {shlex.join(words)}"


def _named(options):
    """The data that a command names, or its config file."""
    return {"dataset": options.dataset or options.config}


def _default(options):
    usual = "digits" if options.clients else "offices"
    return (
        f"{Path(options.dataset or usual).stem}-{options.algorithm or 'fedpn'}-{options.seed or 0}"
    )


def _expanded(place, word):
    """What a shell would make of a pattern, once the files are there."""
    found = sorted(str(p.relative_to(place)) for p in place.glob(word)) if "*" in word else []
    return found or [word]


def _first_values(words):
    """Of each range of a sweep the first value: one cell."""
    spans = {i + 1 for i, word in enumerate(words) if word == "--over"}
    return [w.split(",")[0] if i in spans else w for i, w in enumerate(words)]


def serve(reader, options, words):
    """Starts the service once on a page that then asks it; elsewhere the folders must be there."""
    assert all((reader.place / run).exists() for run in options.runs)
    if not any("curl" in block.body for block in BLOCKS[reader.names["page"]]):
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fedpn.cli.main", *words, "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    reader.served = subprocess.Popen(command, cwd=reader.place, env=environment), port
    for _ in range(600):
        assert reader.served[0].poll() is None, "the service ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service does not answer")


def does_curl(reader, words):
    """Asks the service as curl would."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    asked = parser.parse_args(words)
    host, _, path = asked.url.removeprefix("http://").partition("/")
    assert host == "localhost:8080" and reader.served is not None
    line = http.client.HTTPConnection("127.0.0.1", reader.served[1], timeout=60)
    heads = dict(head.split(": ", 1) for head in asked.H)
    line.request("POST" if asked.d else "GET", f"/{path}", asked.d and asked.d.encode(), heads)
    answer = line.getresponse()
    told = answer.read().decode()
    line.close()
    assert answer.status == 200, told
    assert json.loads(told)["answers"][0]["reason"]


def does_pip(reader, words):
    """Nothing is installed; but what is named must be there to install."""
    assert words[0] == "install"
    for name in (word for word in words[1:] if not word.startswith("-")):
        found = re.fullmatch(r"(fedpn|\.|torch==([\d.]+))(?:\[(\w+)\])?", name)
        assert found, f"what is {name}?"
        assert not found[2] or f"torch=={found[2]}" in MAKEFILE
        assert not found[3] or found[3] in PROJECT["project"]["optional-dependencies"]


def does_make(reader, words):
    """Nothing is made; but the target must be there."""
    for target in (word for word in words if "=" not in word):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"make {target}"


DOES = {"fedpn": does_fedpn, "curl": does_curl, "pip": does_pip, "make": does_make}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_can_be_done(page, tmp_path, monkeypatch, kept, sets, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FEDPN_DATA", str(sets))
    reader = Reader(tmp_path, kept, monkeypatch)
    reader.names["page"] = page
    monkeypatch.setattr(fedpn, "run", reader.run, raising=False)
    monkeypatch.setattr(fedpn, "sweep", reader.sweep, raising=False)
    before = set(sys.modules)
    try:
        for block in BLOCKS[page]:
            if block.kind != "text" and not block.why_not:
                try:
                    reader.follow(block)
                except Exception as error:
                    raise AssertionError(
                        f"{block}: {error}\n{capsys.readouterr().err[-600:]}"
                    ) from error
    finally:
        if reader.served is not None:
            reader.served[0].terminate()
            reader.served[0].wait(120)
        for name in set(sys.modules) - before:  # a page's own files
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_what_is_not_run_says_why():
    for blocks in BLOCKS.values():
        for block in blocks:
            assert not block.why_not or len(block.why_not.split()) >= 2, block


@pytest.mark.parametrize("page", LEFT)
def test_commands_of_pages_that_are_left_exist(page):
    """They are not run, but every `fedpn …` of theirs parses."""
    for block in BLOCKS.get(page, []):
        for line in block.body.replace("\\\n", " ").splitlines():
            if block.kind == "shell" and line.startswith("fedpn "):
                _parser().parse_args(shlex.split(line, comments=True)[1:])


def test_pages_that_matter_are_followed():
    """So that a slip in finding blocks is noticed."""
    for page in ("README.md", "docs/start.md", "docs/studies.md", "docs/guides/phase.md"):
        assert page in PAGES
    assert sum(b.kind != "text" and not b.why_not for bs in BLOCKS.values() for b in bs) >= 40
