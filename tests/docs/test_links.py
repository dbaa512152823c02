"""Links as people follow them in the repository."""

import re

from blocks import ROOT, pages

LINK = re.compile(r"\]\(([^)#\s]+)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


def test_links_in_the_docs_lead_somewhere():
    """To a file, or to a page that is made with the site."""
    for page, text in pages().items():
        folder = (ROOT / page).parent
        for link in LINK.findall(FENCED.sub("", text)):
            if "://" in link:
                continue
            target = (folder / link).resolve()
            made = target.is_relative_to(ROOT) and target.relative_to(ROOT).as_posix()
            is_page = made in pages() or made == "docs/reference/api.md"
            assert target.exists() or is_page, f"{page} links to {link}"


def test_pages_outside_of_the_docs_link_to_files():
    """README.md and its like are read without the site."""
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for link in LINK.findall((ROOT / page).read_text("utf-8")):
            assert "://" in link or (ROOT / page).parent.joinpath(link).exists(), f"{page}: {link}"
