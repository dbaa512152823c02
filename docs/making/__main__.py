"""Write the pages that are made of the code and of what was measured: `make reference`."""

from making import PAGES
from making.links import ROOT

for path, page in PAGES.items():
    (ROOT / path).write_text(page(), encoding="utf-8")
    print(path)
