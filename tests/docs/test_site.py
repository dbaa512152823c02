"""The site as it is built: without a warning, without a dead link, without anything from afar."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from blocks import ROOT, pages

pytest.importorskip("mkdocs", reason="mkdocs-material is not installed: pip install 'fedpn[dev]'")
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and where one may link to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.names, self.alone = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.names |= {told[key] for key in ("id", "name") if told.get(key)}
        if tag == "a" and told.get("href"):
            self.links.append(told["href"])
        if tag in LOADED and told.get(LOADED[tag]):
            self.loads.append(told[LOADED[tag]])
        if tag == "img" and not told.get("alt"):
            self.alone.append(told.get("src"))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(out),
    ]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    told = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return {
        path.relative_to(out).as_posix(): Page(path.read_text("utf-8")) if _is_ours(path) else None
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def _is_ours(path: Path):
    return path.suffix == ".html" and path.name not in ("404.html",)


def _local(link, page):
    """The file of the site and the place in it that a link means; None for addresses."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    folder = Path(page).parent
    path = os.path.normpath(folder / unquote(parts.path)) if parts.path else page
    return Path(path).as_posix(), unquote(parts.fragment)


def test_every_link_of_the_site_leads_somewhere(site):
    dead = []
    for name, page in site.items():
        for link in [*page.links, *page.loads] if page else []:
            found = _local(link, name)
            if found is None:
                continue
            target, place = found
            if target not in site:
                dead.append(f"{name}: {link}")
            elif place and site[target] and place not in site[target].names:
                dead.append(f"{name}: {link} (no such place)")
    assert not dead, "\n".join(dead)


def test_nothing_is_loaded_from_afar(site):
    for name, page in site.items():
        for link in page.loads if page else []:
            assert _local(link, name) is not None, f"{name} loads {link}"


def test_every_picture_is_told_in_words(site):
    for name, page in site.items():
        assert not page or not page.alone, f"{name}: {page.alone}"


def test_every_page_of_the_docs_is_on_the_site(site):
    for source in pages():
        if source.startswith("docs/") and source != "docs/ledger.md":
            assert source.removeprefix("docs/").removesuffix(".md") + ".html" in site
    assert {"paper/ledger.html", "ledger.html", "benchmarks.html", "changelog.html"} <= site.keys()


def test_search_needs_no_server(site):
    """The index is a script, and the worker's stand-in is ours."""
    assert "search/search_index.js" in site
    assert "assets/iframe-worker.js" in site["index.html"].loads
