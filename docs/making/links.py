"""Links: in the repository they name files, on the site pages."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
FENCED = re.compile(r"^(```.*?^```$)", re.DOTALL | re.MULTILINE)


def place_of(uri: str, elsewhere: Mapping[str, str]) -> str:
    """Where a page of the site lies in the repository.

    >>> place_of("changelog.md", {"CHANGELOG.md": "changelog.md"}), place_of("data.md", {})
    ('CHANGELOG.md', 'docs/data.md')
    """
    found = {site: source for source, site in elsewhere.items()}
    return found.get(uri, f"docs/{uri}")


def resolve(link: str, source: str) -> str:
    """The file that a link means, from the root of the repository; "" where it is an address.

    >>> resolve("../results/leaks.json", "docs/leaks.md"), resolve("https://a.b", "docs/x.md")
    ('results/leaks.json', '')
    """
    if "://" in link or link.startswith(("mailto:", "/")):
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def find_links(markdown: str, source: str) -> Iterator[str]:
    """The files that a page links to."""
    for part in FENCED.split(markdown)[::2]:
        for found in LINK.finditer(part):
            yield from filter(None, [resolve(found[2], source)])


@dataclass(frozen=True)
class Places:
    """Where the site has each file of the repository that it shows."""

    known: Mapping[str, str]

    def rewrite(self, markdown: str, source: str, uri: str) -> str:
        """A page's text with links as the site has them; those in blocks of code stay."""
        parts = FENCED.split(markdown)
        parts[::2] = [LINK.sub(lambda m: self._link(m, source, uri), part) for part in parts[::2]]
        return "".join(parts)

    def _link(self, found: re.Match[str], source: str, uri: str) -> str:
        place = self.known.get(resolve(found[2], source))
        if place is None:
            return found[0]
        there = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"{found[1]}{there}{found[3] or ''}{found[4]}"
