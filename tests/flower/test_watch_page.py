"""The page of a federation, in a real browser: clear, calm, and deaf to hostile names."""

import time
from contextlib import contextmanager

import pytest

import statuses
from fedpn.flower.watch.page import serve_page
from pages import PATIENCE, watched

sync_api = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")
expect = sync_api.expect
expect.set_options(timeout=PATIENCE)
CONTRAST = """() => {
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const under = (element) => {
        const colour = rgb(getComputedStyle(element).backgroundColor);
        return colour.length === 3 || colour[3] > 0 ? colour : under(element.parentElement);
    };
    const texts = [...document.querySelectorAll("body *")].filter((element) =>
        [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
    return Math.min(...texts.filter((element) => element.tagName !== "NOSCRIPT").map((element) => {
        const [a, b] = [light(rgb(getComputedStyle(element).color)), light(under(element))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }));
}"""


@contextmanager
def opened(browser, place, width=1280, scheme="light", accepted=None):
    """The page over a place."""
    here = lambda url: "127.0.0.1" in url or url.startswith("data:")  # noqa: E731
    with (
        serve_page([place], 0) as served,
        watched(browser, width, accepted, here, color_scheme=scheme) as page,
    ):
        page.goto(served.address)
        page.wait_for_selector(".card")
        yield page, served


@pytest.fixture
def scene(tmp_path):
    statuses.write(tmp_path / "a", statuses.going())
    statuses.write(tmp_path / "b", statuses.finished())
    statuses.write(tmp_path / "c", statuses.failed())
    statuses.write(tmp_path / "d", statuses.node())
    statuses.write(tmp_path / "d", statuses.link(), "link.json")
    statuses.write(tmp_path / "e", "{")
    hostile = [statuses.member(statuses.MARKUP), statuses.member("x" * 300)]
    statuses.write(tmp_path / "f", statuses.going(name=statuses.MARKUP, nodes=hostile))
    return tmp_path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_all_is_seen_in_light_and_dark_on_wide_and_narrow(width, scheme, browser, scene):
    with opened(browser, scene, width, scheme) as (page, _):
        states = page.locator(".top .state").all_inner_texts()
        assert states == ["running", "finished", "failed", "running", "busy", "unreadable"]
        first = page.locator(".card").first
        assert first.locator("tbody tr").count() == 3
        for words in ("st-berta", "left out", "214 times", "about 4 min 11 s", "did not answer"):
            expect(first).to_contain_text(words)
        expect(page.locator(".card").nth(1)).to_contain_text("93.0 %")
        assert page.locator("img").count() == 0
        expect(page.locator("h2", has_text="onerror")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate(CONTRAST) >= 4.5
        assert page.title() == "(2) fedpn federation"


def test_it_is_told_to_those_who_listen(browser, scene):
    """Roles and names, as assistive software has them, also where the table is laid out anew."""
    with opened(browser, scene, 390) as (page, _):
        table = page.get_by_role("table", name="Nodes (3)").first
        assert table.get_by_role("columnheader").count() == 9
        assert table.get_by_role("rowheader", name="st-anna").count() == 1
        assert table.get_by_role("cell", name="left out").count() == 1
        assert page.get_by_role("progressbar", name="round 3 of 20").count() >= 1
        assert page.get_by_role("heading", level=1).inner_text() == "Federation"
        expect(page.get_by_role("status")).to_contain_text("4 runs, 1 node, 1 unreadable")


def test_it_renews_itself_and_keeps_focus_and_place(browser, tmp_path):
    many = [{"time": time.time() - i, "text": f"warning {i}"} for i in range(50, 0, -1)]
    place = statuses.write(tmp_path / "run", statuses.going(warnings=many))
    with opened(browser, tmp_path) as (page, _):
        page.locator(".warnings").focus()
        page.evaluate("document.querySelector('.warnings').scrollTop = 120")
        statuses.write(place, statuses.going(warnings=many, round=4))
        expect(page.locator("progress")).to_have_attribute("value", "4")
        assert page.evaluate("document.activeElement.className") == "warnings"
        assert page.evaluate("document.querySelector('.warnings').scrollTop") == 120
        statuses.write(place, statuses.finished())
        expect(page.locator(".top .state")).to_have_text("finished")


def test_nothing_yet_and_no_answer_are_said(browser, tmp_path):
    with opened(browser, tmp_path, accepted="ERR_CONNECTION_REFUSED") as (page, served):
        expect(page.locator("main")).to_contain_text("Nothing has told of itself yet")
        statuses.write(tmp_path / "run", statuses.going())
        expect(page.locator(".top .state")).to_have_text("running")
        port = int(served.address.split(":")[2].strip("/"))
        served.stop()
        expect(page.get_by_role("status")).to_have_text("No answer: what is shown may be old.")
        expect(page.locator(".top .state")).to_have_text("running")
        with serve_page([tmp_path], port):
            expect(page.get_by_role("status")).to_contain_text("1 run")
