"""The page, in a real browser over a real service: who asks there sees what the service says."""

import base64
import re
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from swaps import swap

import fedpn
from fedpn.service.app import make_app
from fedpn.service.decisions import Decisions
from fedpn.service.decode import to_png
from fedpn.service.library import Library
from fedpn.serving.bundle import version_of
from pages import PATIENCE, watched

sync_api = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")
expect = sync_api.expect
expect.set_options(timeout=PATIENCE)
MARKUP = "<img src=x onerror=alert(1)>"


@contextmanager
def served(run, database=None, **options):
    """The address of a service over a run, that ends with the block."""
    decisions = Decisions(f"sqlite:///{database}") if database else None
    app = make_app(Library([run]), decisions=decisions, **options)
    with socket.create_server(("127.0.0.1", 0)) as door:
        config = uvicorn.Config(app, log_level="critical", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def opened(browser, address, width=1280, accepted=None):
    """The page at an address."""
    with watched(browser, width, accepted) as page:
        page.goto(address)
        yield page


@pytest.fixture
def digits_page(browser, pictures, tmp_path):
    """A page over three clients with digits; decisions are kept."""
    with served(pictures, tmp_path / "d.db") as address, opened(browser, address) as page:
        yield page


def overflow(page):
    """How many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def decision(page):
    """Who answers, and what, once it is there."""
    expect(page.locator("#decision")).to_have_attribute("aria-busy", "false")
    return page.inner_text(".who"), page.inner_text(".label")


def draw(page, *points):
    """Draws a line through points, given as shares of the canvas."""
    page.locator("#canvas").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def whiteness(page):
    """How much of the canvas is white."""
    script = """() => {
        const canvas = document.getElementById("canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return data.filter((v, i) => i % 4 === 0 && v > 128).length / (data.length / 4);
    }"""
    return page.evaluate(script)


def test_a_sample_is_answered_and_its_place_is_lit(digits_page):
    page = digits_page
    page.select_option("#client", label="2")
    page.get_by_role("button", name=re.compile("known: ")).first.click()
    who, label = decision(page)
    lit = page.locator(".places li[aria-current]")
    expect(lit).to_have_count(1)
    assert lit.get_attribute("data-outcome") in {
        "The client's own model answers": ("local_confident",),
        "The federation's model answers": ("local_ood",),
        "Nobody answers": ("local_ambiguous", "global_uncertain", "stranger"),
    }.get(who, ())
    assert (who == "Nobody answers") == label.startswith("no answer (perhaps ")
    assert page.locator(".class").count() == 10
    assert page.locator(".class.chosen").count() == 1
    views = 3 if who == "Nobody answers" else 4  # the answer is none where nobody answers
    assert page.locator(".class").first.locator(".bar").count() == views
    expect(page.locator("#feed li").first).to_contain_text("client 2, no. 1")


def test_a_drawing_is_asked_about(digits_page):
    page = digits_page
    assert whiteness(page) == 0
    draw(page, (0.3, 0.2), (0.7, 0.2), (0.45, 0.8))
    assert 0.05 < whiteness(page) < 0.4
    with page.expect_request("**/v1/predict") as sent:
        page.get_by_role("button", name="Ask", exact=True).click()
    told = sent.value.post_data_json
    assert told["explain"] is True
    assert told["inputs"][0].startswith("data:image/png;base64,")
    assert decision(page)[1]
    page.get_by_role("button", name="Clear").click()
    assert whiteness(page) == 0


def test_files_are_chosen_or_dropped_and_answered_alike(digits_page, digits, tmp_path):
    page, file = digits_page, tmp_path / "a digit.png"
    file.write_bytes(to_png(digits.x[7]))
    page.set_input_files("#file", file)
    chosen = decision(page)
    assert whiteness(page) > 0
    page.get_by_role("button", name="Clear").click()
    script = """(text) => {
        const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const held = new DataTransfer();
        held.items.add(new File([bytes], "b.png", { type: "image/png" }));
        return held;
    }"""
    held = page.evaluate_handle(script, base64.b64encode(file.read_bytes()).decode())
    page.dispatch_event("#ask", "drop", {"dataTransfer": held})
    expect(page.locator("#feed li")).to_have_count(2)
    assert decision(page)[1] == chosen[1]


def test_what_is_no_picture_is_told_beside_the_question(browser, pictures, tmp_path):
    file = tmp_path / "a.png"
    file.write_text("no picture")
    with served(pictures) as address, opened(browser, address, accepted="400") as page:
        page.set_input_files("#file", file)
        expect(page.locator("#ask-error")).to_contain_text("input 0")
        expect(page.locator("#verdict")).to_have_text("There is no decision.")


def test_a_person_labels_what_nobody_answered(digits_page):
    page = digits_page
    page.get_by_role("button", name=re.compile("strange: noise")).click()
    assert decision(page)[0] == "Nobody answers"
    line = page.locator("#reviews li").first
    expect(line.locator("img")).to_be_visible()
    line.get_by_label("Class of no. 1").select_option("4")
    line.get_by_role("button", name="Save").click()
    expect(page.locator("#reviews")).to_have_text("Nothing waits.")
    expect(page.locator("#reviews-said")).to_have_text("No. 1 is labelled 4.")
    expect(page.locator("#feed li").first).to_contain_text("A person said: 4")


@pytest.mark.parametrize("keep", [True, False])
def test_what_becomes_of_a_label_is_told(browser, pictures, tmp_path, keep):
    with (
        served(pictures, tmp_path / "d.db", keep_inputs=keep) as address,
        opened(browser, address) as page,
    ):
        words = "for later training" if keep else "nothing can be trained on it"
        expect(page.locator("#reviews-about")).to_contain_text(words)


def test_of_what_nobody_answers_both_models_chances_are_told(digits_page):
    page = digits_page
    with page.expect_response("**/v1/predict") as heard:
        page.get_by_role("button", name=re.compile("strange: noise")).click()
    assert decision(page)[0] == "Nobody answers"
    (told,) = heard.value.json()["answers"]
    assert "sure" not in page.inner_text("#verdict")
    expect(page.locator("#feed li").first.locator("div").first).to_have_text(
        f"Nobody answers; perhaps {told['guess']}"
    )
    assert "The answer" not in page.inner_text(".legend >> nth=0")
    views = [told["explanation"][name] for name in ("local", "global")]
    for name, line in zip(views[0], page.locator(".class").all(), strict=True):
        numbers = line.locator("span").last.inner_text().split(" / ")
        for view, number in zip(views, numbers, strict=True):
            shown = float(re.sub(r"[^\d]", "", number))
            assert shown == pytest.approx(100 * view[name], abs=1)


def test_drift_is_drawn_and_warned_of(browser, pictures, tmp_path):
    with served(pictures, tmp_path / "d.db") as address, opened(browser, address) as page:
        noise = np.random.default_rng(0).integers(0, 256, (60, 28, 28)).tolist()

        def ask(inputs):
            page.request.post(f"{address}v1/predict", data={"client": "0", "inputs": inputs})

        for count, more in ((0, 1), (1, 28), (29, 31)):
            expect(page.locator("#chart")).to_have_text(
                f"{count} of 30 inputs of this client: too few to tell."
            )
            ask(noise[count : count + more])
        expect(page.locator(".warning")).to_contain_text("% strangers among the last 60 inputs")
        assert page.locator("#chart polyline").count() == 4
        assert page.locator("#chart [stroke-dasharray]").count() == 3
        assert page.locator("#chart circle").count() == 12


def test_a_row_of_a_table_is_filled_in(browser, table, tmp_path):
    with served(table, tmp_path / "d.db") as address, opened(browser, address, 390) as page:
        page.select_option("#client", label="Oslo")
        page.get_by_label("age").fill("1.5")
        page.get_by_label("pulse").fill("1.2")
        page.get_by_label("heat").fill("-0.5")
        with page.expect_request("**/v1/predict") as sent:
            page.get_by_label("heat").press("Enter")
        told = sent.value.post_data_json
        assert (told["client"], told["inputs"]) == ("Oslo", [[1.5, 1.2, -0.5]])
        assert decision(page)[1].removeprefix("no answer (perhaps ")
        page.get_by_role("button", name=re.compile("strange")).click()
        expect(page.locator(".who")).to_have_text("Nobody answers")
        assert float(page.get_by_label("age").input_value()) > 10
        expect(page.locator("#reviews li").first).to_contain_text("age: ")
        assert overflow(page) <= 0


def test_a_page_whose_models_were_swapped_asks_anew(browser, folders, tmp_path):
    live = shutil.copytree(folders["first"], tmp_path / "live")
    with served(live) as address, opened(browser, address, accepted="409") as page:
        page.get_by_label("weight").fill("2")
        page.get_by_label("sodium").fill("-2")
        swap(folders["turned"], live)
        old, clients = version_of(folders["first"]), f"{address}v1/clients"
        while page.request.get(clients).json()[0]["version"] == old:
            time.sleep(0.05)
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#ask-error")).to_contain_text("New models answer now")
        expect(page.locator("#fields label").first).to_contain_text("sodium")
        page.get_by_label("weight").fill("2")
        page.get_by_label("sodium").fill("-2")
        page.get_by_role("button", name="Ask", exact=True).click()
        assert decision(page)[1] == "heavy"
        expect(page.locator("#ask-error")).to_be_empty()


def test_nothing_is_wider_than_a_telephone(browser, pictures, tmp_path):
    with served(pictures, tmp_path / "d.db") as address, opened(browser, address, 390) as page:
        page.get_by_role("button", name=re.compile("strange: noise")).click()
        assert decision(page)[0] == "Nobody answers"
        page.get_by_text("Model card").click()
        expect(page.locator("#card table")).to_be_visible()
        assert overflow(page) <= 0


def test_names_with_markup_stay_text(browser, tmp_path):
    rng = np.random.default_rng(0)
    kinds, clients = (f"{MARKUP}*ill*|", *"abcdefghijklmn"), (MARKUP, "<b>Oslo</b>")
    lines = [f"{MARKUP},heat,label,client"]
    for i in range(600):
        x, heat = rng.normal(size=2) + 4 * (i % 15)
        lines.append(f"{x:.3f},{heat:.3f},{kinds[i % 15]},{clients[i // 300]}")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    source = str(tmp_path / "t.csv")
    small = {"head__fourier": 50, "routing__sets": 0.1}
    fedpn.run(tmp_path / "run", dataset=source, algorithm="analytic", **small)
    database = tmp_path / "d.db"
    with served(tmp_path / "run", database) as address, opened(browser, address) as page:
        page.select_option("#client", label=MARKUP)
        page.get_by_role("spinbutton", name=MARKUP).fill("0")
        page.get_by_label("heat").fill("900")
        page.get_by_label("heat").press("Enter")
        decision(page)
        expect(page.locator("#feed li")).to_contain_text(f"client {MARKUP}, no. 1")
        page.get_by_text("Model card").click()
        expect(page.locator("#card h2").first).to_have_text(f"Model card: client {MARKUP}")
        expect(page.locator("#card tbody")).to_contain_text(kinds[0])
        page.get_by_role("button", name="Show all 15 classes").click()
        expect(page.locator(".bars")).to_contain_text(kinds[0])
        expect(page.locator(".facts")).to_contain_text("Classes in question")
        assert page.locator("img").count() == 0


def test_a_token_is_asked_for_where_one_is_needed(browser, pictures):
    with (
        served(pictures, token="sesame") as address,
        opened(browser, address, accepted="401") as page,
    ):
        page.get_by_label("Token").fill("wrong")
        page.get_by_label("Token").press("Enter")
        expect(page.locator("#token-error")).to_have_text("This token is not taken.")
        page.get_by_label("Token").fill("sesame")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#client option")).to_have_count(3)
        expect(page.locator("#token-form")).to_be_hidden()
        page.reload()
        expect(page.locator("#client option")).to_have_count(3)


def test_without_kept_decisions_nothing_is_watched(browser, table):
    with served(table) as address, opened(browser, address) as page:
        expect(page.locator(".sample").first).to_be_visible()
        expect(page.locator("#watch")).to_be_hidden()
        expect(page.locator("#token-form")).to_be_hidden()
        page.get_by_role("button", name=re.compile("middle")).click()
        assert decision(page)[1]


def test_a_method_without_a_switch_says_so(browser, table, tmp_path):
    source = str(Path(table).parent / "t.csv")
    short = {"rounds": 1, "train__steps": 2, "routing__strangers": 0}
    fedpn.run(tmp_path / "run", dataset=source, algorithm="fedavg", **short)
    with served(tmp_path / "run") as address, opened(browser, address) as page:
        for field in ("age", "pulse", "heat"):
            page.get_by_label(field).fill("0.7")
        page.get_by_role("button", name="Ask", exact=True).click()
        assert decision(page)[0] == "The one model of all clients answers"
        expect(page.locator(".one")).to_contain_text("one model always answers")
        assert page.locator(".places").count() == 0
        assert page.locator(".class").first.locator(".bar").count() == 1


def test_columns_of_all_kinds_are_filled_in(browser, clinic, tmp_path):
    with served(clinic, tmp_path / "d.db") as address, opened(browser, address, 390) as page:
        page.get_by_role("button", name="middle of the data").click()
        expect(page.locator("#verdict")).to_contain_text(re.compile("gesund|krank"))
        fields = page.locator("#fields input")
        assert fields.count() == 8
        assert fields.nth(3).input_value() in page.locator("#values-3 option").evaluate_all(
            "options => options.map((option) => option.value)"
        )
        fields.nth(1).fill("12,5")
        fields.nth(2).fill("")  # missing
        page.locator("#table button").click()
        expect(page.locator("#verdict")).to_contain_text(re.compile("gesund|krank"))
        expect(page.locator("#verdict")).to_contain_text("How it was read: 'Alter': decimal points")
        expect(page.locator("#ask-error")).to_be_empty()
