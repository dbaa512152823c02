"""MkDocs hooks: pages that lie elsewhere in the repository, and links between all pages."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from making.links import ROOT, Places, find_links, place_of

# Where the site has pages that lie elsewhere in the repository.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "vulnerabilities.md",
    "benchmarks/README.md": "benchmarks.md",
    "results/README.md": "results.md",
    "docs/ledger.md": "paper/ledger.md",  # beside docs/ledger.html, which is one file as well
}
PICTURE = re.compile(r'<p><img alt="([^"]*)" src="([^"]*pictures/([\w-]+\.svg))" ?/?></p>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages from elsewhere, and files that pages link to."""
    for source, uri in ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text("utf-8")))
    known = {f"docs/{file.src_uri}": file.src_uri for file in files} | ELSEWHERE
    linked = {
        target
        for page in files.documentation_pages()
        for target in find_links(page.content_string, place_of(page.src_uri, ELSEWHERE))
    }
    for target in sorted(linked - known.keys()):
        if (ROOT / target).is_file():
            known[target] = f"files/{target}"
            files.append(File.generated(config, known[target], abs_src_path=str(ROOT / target)))
    config.extra["places"] = Places(known)
    pages = [page.src_uri for page in files.documentation_pages()]
    unplaced = [uri for uri in pages if repr(uri) not in repr(config.nav)]
    if unplaced:  # a page that is new, until it has its place in mkdocs.yml
        config.nav.append({"More": sorted(unplaced)})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the repository has them -> links as the site has them."""
    places: Places = config.extra["places"]
    uri = page.file.src_uri
    return places.rewrite(markdown, place_of(uri, ELSEWHERE), uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Pictures that we drew become part of the page, so that they follow its colours.

    One that has a narrow form too, `NAME-narrow.svg`, shows that on small screens.
    """
    pictures = Path(config.docs_dir) / "pictures"

    def inline(found: re.Match[str]) -> str:
        drawn, slim = pictures / found[3], pictures / found[3].replace(".svg", "-narrow.svg")
        wide = f'<figure class="picture">{drawn.read_text("utf-8")}</figure>'
        if not slim.exists():
            return wide
        narrow = f'<figure class="picture narrow">{slim.read_text("utf-8")}</figure>'
        return wide.replace('"picture"', '"picture wide"', 1) + narrow

    return PICTURE.sub(inline, html)


def on_post_build(config: MkDocsConfig) -> None:
    """The ledger is one file that stands alone; on the site it has a way back."""
    page = Path(config.site_dir) / "ledger.html"
    back = '<p><a href="index.html">fedpn</a> · <a href="paper/ledger.html">with the menu</a></p>'
    text = page.read_text("utf-8")
    page.write_text(text.replace("<body>", f"<body>\n{back}", 1), encoding="utf-8")


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Nothing of ours is left for the theme to write out."""
    config.extra.pop("places", None)
    return env
