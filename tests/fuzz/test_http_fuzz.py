"""Whatever is sent to the service, it answers: never that it failed, and always in JSON."""

import base64
import gc
import json

import pytest
from absurd import changed, json_values, numbers, texts
from files import FORMATS, csv, picture
from finished_runs import run_of_a_table, run_of_pictures
from hypothesis import example, given
from hypothesis import strategies as st
from mutate import mutated
from starlette.testclient import TestClient
from trial import at_once, fuzz

from fedpn.service.app import make_app
from fedpn.service.decisions import Decisions
from fedpn.service.library import Library

# Starlette leaves files of forms that end too early to the collector, which closes them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROW = {"client": "Oslo", "inputs": [[0.5, 1.5], {"age": 1, "pulse": 2}], "own_share": 0.5}
PICTURE = {"client": "0", "inputs": [[[0] * 28] * 28], "explain": True}
BOUNDARY = b"b0undary"
KINDS = ["application/json", "text/csv", "image/png", "", "application/x-www-form-urlencoded"]
KINDS += ["multipart/form-data", "multipart/form-data; boundary=b0undary; charset=x-none"]
FORM = f"multipart/form-data; boundary={BOUNDARY.decode()}"


def form_of(*files, client=b"0"):
    """The body of a form with files in it."""
    lines = [b'Content-Disposition: form-data; name="client"\r\n\r\n' + client]
    head = b'Content-Disposition: form-data; name="files"; filename="a.png"\r\n'
    lines += [head + b"Content-Type: image/png\r\n\r\n" + file for file in files]
    parts = [b"--" + BOUNDARY + b"\r\n" + line + b"\r\n" for line in lines]
    return b"".join(parts) + b"--" + BOUNDARY + b"--\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Both runs behind one service, which keeps decisions and inputs."""
    place = tmp_path_factory.mktemp("decisions") / "decisions.db"
    makers = (run_of_pictures, run_of_a_table)
    library = Library([make(tmp_path_factory.mktemp("models")) for make in makers])
    app = make_app(library, decisions=Decisions(f"sqlite:///{place}"), keep_inputs=True)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client
    gc.collect()


def told(response):
    """What was answered; a reader of strict JSON understands it."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    assert response.status_code < 500, response.text
    found = json.loads(response.text, parse_constant=refuse)
    assert response.status_code == 200 or found["error"]
    return response.status_code


def ask(service, body, kind="application/json"):
    with at_once():
        return told(service.post("/v1/predict", content=body, headers={"Content-Type": kind}))


def as_json(value):
    return json.dumps(value).encode()


@fuzz(examples=100)
@given(body=st.one_of(*(mutated(as_json(question)) for question in (ROW, PICTURE))))
@example(body=as_json(ROW).replace(b"0.5, 1.5", b"NaN, -Infinity"))
@example(body=as_json(ROW).replace(b"1.5", b"1" * 5000))
@example(body=as_json(ROW).replace(b"Oslo", b"\\ud800"))
@example(body=as_json(ROW).replace(b"[0.5, 1.5]", b"[" * 500 + b"]" * 500))
def test_json_with_damage(body, service):
    ask(service, body)


@fuzz(examples=100)
@given(question=st.one_of(changed(ROW, json_values()), changed(PICTURE, json_values())))
def test_questions_of_absurd_values(question, service):
    ask(service, as_json(question))


@fuzz(examples=60)
@given(rows=st.lists(st.lists(numbers(), min_size=2, max_size=2), min_size=1, max_size=4))
def test_rows_of_absurd_numbers(rows, service):
    ask(service, as_json({"client": "Bergen", "inputs": rows, "explain": True}))


PICTURES = st.one_of(*(mutated(picture(form)) for form in FORMATS))


@fuzz(examples=60)
@given(content=PICTURES, client=st.sampled_from([b"0", b"1", b"Oslo"]))
@example(content=picture("PNG"), client=b"Oslo")  # whose model takes rows of a table
def test_uploads_of_pictures_with_damage(content, client, service):
    ask(service, form_of(content, client=client), FORM)
    text = base64.b64encode(content).decode()
    ask(service, as_json({"client": client.decode(), "inputs": [text]}))


@fuzz(examples=80)
@given(body=mutated(form_of(picture("PNG"), b"x")), kind=st.sampled_from([FORM, FORM, *KINDS]))
def test_forms_with_damage(body, kind, service):
    ask(service, body, kind)


@fuzz(examples=40)
@given(body=st.one_of(mutated(csv()), st.binary(max_size=50)), kind=st.sampled_from([*KINDS, FORM]))
def test_bodies_of_other_kinds(body, kind, service):
    ask(service, body, kind)


@fuzz(examples=60)
@given(
    path=st.sampled_from(["/v1/card", "/v1/samples", "/v1/decisions", "/v1/reviews", "/v1/drift"]),
    client=texts(),
    count=st.one_of(numbers().map(str), texts()),
)
def test_questions_in_addresses(path, client, count, service):
    with at_once():
        told(service.get(path, params={"client": client, "count": count}))


@fuzz(examples=40)
@given(
    number=st.one_of(st.integers(1, 3).map(str), numbers().map(str)),
    label=st.one_of(st.sampled_from(["ill", "7"]), json_values()),
)
def test_reviews(number, label, service):
    with at_once():
        told(service.post(f"/v1/reviews/{number}", content=as_json({"label": label})))
        told(service.get(f"/v1/decisions/{number}/input"))


def test_whole_questions_are_answered(service):
    assert ask(service, as_json(ROW)) == 200
    assert ask(service, as_json(PICTURE)) == 200
    assert ask(service, form_of(picture("PNG")), FORM) == 200
