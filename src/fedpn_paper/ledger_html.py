"""The ledger as one self-contained page."""

import re
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedpn_paper import verdict
from fedpn_paper.ledger_markdown import signed
from fedpn_paper.tables import Entry

if TYPE_CHECKING:
    from fedpn_paper.ledger import Book, Figure

KINDS = {
    verdict.REPRODUCED: "yes",
    verdict.IN_PART: "partly",
    verdict.MOSTLY_NOT: "no",
    verdict.NOT: "no",
    verdict.NOT_RUN: "unknown",
}


def render(book: "Book") -> str:
    """Fills the template, which escapes whatever it shows but the drawings."""
    environment = Environment(
        loader=PackageLoader("fedpn_paper"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"signed": signed, "drawing": _drawing}
    environment.tests["words"] = _is_words
    return environment.get_template("ledger.html").render(book=book, kinds=KINDS)


def _is_words(entry: Entry | str) -> bool:
    return isinstance(entry, str) and any(letter.isalpha() for letter in entry)


def _drawing(figure: "Figure") -> Markup:
    """The figure's SVG; two on one page must not share the names of their parts."""
    return Markup(re.sub(r'(id="|href="#|url\(#)', rf"\1{figure.name}-", figure.svg))
