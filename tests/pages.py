"""Pages in a real browser, on which nothing may go wrong."""

from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60_000  # milliseconds; a busy machine takes its time
CHROMIUM = Path("/usr/bin/chromium")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def watched(browser, width=1280, accepted=None, allows=lambda url: True, **options):
    """An empty page; what goes wrong on it fails the test, but for what is accepted."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page, wrong = context.new_page(), []
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda line: line.type == "error" and wrong.append(line.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: allows(request.url) or wrong.append(request.url))
    yield page
    told = [text for text in wrong if accepted is None or accepted not in text]
    context.close()
    assert told == []
