"""The report in a real browser: values under the pointer, order, filters, print, hostile names."""

import base64
import hashlib
import json
import re
import shutil
from contextlib import contextmanager
from itertools import pairwise

import pytest

from fedpn.core import store
from fedpn.reporting import report
from pages import PATIENCE, watched

sync_api = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")
expect = sync_api.expect
expect.set_options(timeout=PATIENCE)
EVIL = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
CLIENTS = ["St. Anna", "Charité", EVIL, "名前"]


@pytest.fixture(scope="module")
def page_file(quick_run, tmp_path_factory):
    """The page of a run whose clients have names, some of them hostile, and whose bytes count."""
    run = shutil.copytree(quick_run, tmp_path_factory.mktemp("page") / "run")
    tree = json.loads((run / "bundle.json").read_text())
    classes = [*"abcdefgh", EVIL, "javascript:alert(3)"]
    store.write_json(run / "bundle.json", tree | {"clients": CLIENTS, "classes": classes})
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    counted = [
        line | {"sent": 2_000_000, "received": 1_500_000 + i} for i, line in enumerate(lines)
    ]
    (run / "history.jsonl").write_text("\n".join(map(json.dumps, counted)))
    report.write_page([run], run / "report.html")
    return run / "report.html"


@contextmanager
def opened(browser, path, width=1280, **options):
    """The page from its file, which must fetch nothing."""
    off_line = lambda url: not url.startswith("http")  # noqa: E731
    with watched(browser, width, allows=off_line, **options) as page:
        page.goto(path.as_uri())
        yield page


def column(page, section, number):
    """The texts of a column of a table, as far as its rows are shown."""
    cells = page.locator(f"#{section} tbody tr:visible > :nth-child({number})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_tables_are_sorted_by_a_click_and_by_a_key(browser, page_file):
    with opened(browser, page_file) as page:
        head = page.locator("#classes thead th").nth(1)
        before = column(page, "classes", 2)
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert column(page, "classes", 2) == sorted(before, key=float, reverse=True)
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert column(page, "classes", 2) == sorted(before, key=float)
        page.locator("#classes thead th").first.get_by_role("button").click()
        assert head.get_attribute("aria-sort") is None
        assert column(page, "classes", 1)[-3:] == ["g", "h", "javascript:alert(3)"]


def test_what_is_unknown_stays_last(browser, page_file):
    with opened(browser, page_file) as page:
        head = page.locator("#classes thead th").nth(3).get_by_role("button")
        for _ in range(2):
            head.click()
            shares = column(page, "classes", 4)
            known = [share for share in shares if share != "–"]
            assert shares[: len(known)] == known


def test_a_client_and_a_class_are_picked_out(browser, page_file):
    with opened(browser, page_file) as page:
        everything = len(column(page, "clients", 1))
        assert everything == len(CLIENTS)
        page.get_by_label("client", exact=True).select_option("Charité")
        assert column(page, "clients", 1) == ["Charité"]
        expect(page.locator("#filter output")).to_have_text("Shown: client Charité")
        assert set(column(page, "classes", 1)) == set(column(page, "clients", 2)[0].split(", "))
        assert page.locator("#answers g.dim").count() == 2 * (everything - 1)
        cards = page.locator(".card:visible").all_inner_texts()
        assert all("Charité" in card for card in cards)
        page.get_by_label("class", exact=True).select_option(column(page, "classes", 1)[0])
        assert len(column(page, "classes", 1)) == 1
        page.get_by_role("button", name="Show all").click()
        expect(page.locator("#filter output")).to_be_empty()
        assert len(column(page, "clients", 1)) == everything


def test_a_filter_that_leaves_nothing_says_why(browser, page_file):
    with opened(browser, page_file) as page:
        owned = column(page, "clients", 2)[1].split(", ")
        other = next(name for name in "abcdefgh" if name not in owned)
        page.get_by_label("client", exact=True).select_option("Charité")
        page.get_by_label("class", exact=True).select_option(other)
        assert column(page, "clients", 1) == []
        expect(page.locator("#filter output")).to_have_text(
            f"Shown: client Charité, class {other}. Client Charité has no class {other}."
        )
        page.get_by_label("class", exact=True).select_option(owned[0])
        expect(page.locator("#filter output")).not_to_contain_text("has no")


def test_a_class_lights_its_own_row_and_column(browser, page_file):
    with opened(browser, page_file) as page:
        page.get_by_label("class", exact=True).select_option("b")
        taken = page.locator("figure", has_text="What is taken for what")
        for mark in taken.locator("circle").all():
            place = mark.get_attribute("data-r"), int(mark.get_attribute("data-c")) - 1
            is_lit = "dim" not in mark.get_attribute("class")
            assert is_lit == (place[0] == "1" or place[1] == 1)
        owned = page.locator("figure", has_text="Who owns what").locator("circle:not(.dim)")
        assert {mark.get_attribute("data-c") for mark in owned.all()} == {"2"}


def test_marks_tell_their_values(browser, page_file):
    with opened(browser, page_file) as page:
        tip = page.locator("#tip")
        expect(tip).to_be_hidden()
        page.locator("#answers g[data-r='1']").first.hover()
        expect(tip).to_contain_text("client Charité")
        expect(tip).to_contain_text(re.compile(r"own model, sure \(own classes\), %: \d"))
        loss = page.locator("figure", has_text="Loss by round")
        loss.locator("svg [data-r='1']").hover()
        last = loss.locator("tbody tr").nth(1).locator("td").text_content()
        expect(tip).to_have_text(re.compile(rf"round 2\s*loss: {re.escape(last)}"))
        page.locator("h1").hover()
        expect(tip).to_be_hidden()


def test_charts_are_walked_through_with_keys(browser, page_file):
    with opened(browser, page_file) as page:
        figure = page.locator("figure", has_text="Bytes by round")
        figure.locator(".pictures svg").focus()
        page.keyboard.press("ArrowRight")
        told = page.locator("#tip")
        expect(told).to_contain_text("round 1")
        expect(told).to_contain_text("received from them: 1.5 MB")
        page.keyboard.press("ArrowRight")
        expect(told).to_contain_text("round 2")
        page.keyboard.press("Escape")
        expect(told).to_be_hidden()


def test_names_stay_beside_the_figures_of_a_wide_table(browser, page_file):
    """On a telephone the first column stays where it is, below the filter."""
    with opened(browser, page_file, 390) as page:
        box = page.locator("#clients .scroll")
        name = box.locator("tbody th").nth(1)
        before = name.bounding_box()["x"]
        assert box.evaluate("box => { box.scrollLeft = 90; return box.scrollLeft; }") == 90
        assert abs(name.bounding_box()["x"] - before) < 1
        worth = page.locator("#worth .scroll").first
        assert worth.evaluate("box => box.scrollWidth <= box.clientWidth + 1")


def test_names_stay_texts(browser, page_file):
    with opened(browser, page_file) as page:
        page.get_by_label("client", exact=True).select_option(EVIL)
        expect(page.locator("#filter output")).to_have_text(f"Shown: client {EVIL}")
        assert column(page, "clients", 1) == [EVIL]
        page.locator("#answers g[data-r='2']").first.hover()
        expect(page.locator("#tip")).to_contain_text(EVIL[:20])
        assert page.locator("img[src=x]").count() == 0
        assert page.locator("script").count() == 1


def test_no_script_but_ours_is_run(browser, page_file, tmp_path):
    """If markup did slip in, the policy of the page would still stop it."""
    text = page_file.read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in text
    marked = text.replace("</h1>", "</h1><script>document.title = 'taken'</script>")
    marked = marked.replace("</nav>", "</nav><img src=x onerror=\"document.title = 'taken'\">")
    (tmp_path / "marked.html").write_text(marked, encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "marked.html").as_uri())
    expect(page.locator("#filter")).to_be_visible()  # our own still runs
    assert page.title() != "taken"
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone_and_has_contrast(browser, page_file, scheme):
    with opened(browser, page_file, 390, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        colours = page.evaluate(COLOURS)
        for paper in ("--paper", "--card"):
            for ink in ("--ink", "--soft", "--mark", "--alarm"):
                assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
            for mark in MARKS:
                assert contrast(colours[mark], colours[paper]) >= 3, (mark, paper)
        assert contrast(colours["--edge"], colours["--card"]) >= 3


MARKS = ["--local", "--global", "--switch", "--bayes", "--oracle", "--other"]
MARKS += ["--ambiguous", "--uncertain"]
COLOURS = """() => {
    const style = getComputedStyle(document.documentElement);
    const names = ["--paper", "--card", "--ink", "--soft", "--mark", "--alarm", "--edge",
        "--local", "--global", "--switch", "--bayes", "--oracle", "--other", "--ambiguous",
        "--uncertain"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name).trim()]));
}"""


def contrast(one, other):
    """WCAG's ratio of two colours."""

    def light(colour):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        shares = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_it_is_whole_without_a_script(browser, page_file):
    with opened(browser, page_file, java_script_enabled=False) as page:
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.title() == page.locator("h1").inner_text()
        expect(page.locator("#filter")).to_be_hidden()
        assert page.locator("button:visible").count() == 0
        assert len(page.locator("#clients tbody tr").all()) == len(CLIENTS)
        figures = page.locator("figure")
        assert figures.count() == 9
        for figure in figures.all():
            assert figure.locator("table").count() == 1
            for picture in figure.locator(".pictures svg").all():
                assert picture.get_attribute("role") == "img" and picture.get_attribute(
                    "aria-label"
                )
        assert all(image.get_attribute("alt") for image in page.locator("img").all())
        figures.first.get_by_text("As a table").click()
        expect(figures.first.locator("table")).to_be_visible()


def test_headings_come_in_order(page_file):
    levels = [int(n) for n in re.findall(r"<h(\d)", page_file.read_text(encoding="utf-8"))]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_it_prints_without_controls_and_whole(browser, page_file):
    with opened(browser, page_file, 700) as page:
        page.emulate_media(media="print")
        for control in ("nav", ".pick", "#filter button", "summary"):
            assert page.locator(f"{control}:visible").count() == 0, control
        cut = """() => [...document.querySelectorAll(".scroll")]
            .filter((box) => box.offsetParent && box.scrollWidth > box.clientWidth + 1).length"""
        assert page.evaluate(cut) == 0
        assert page.locator("#clients tbody tr:visible").count() == len(CLIENTS)
        assert len(page.pdf(format="A4")) > 10_000
