"""What callers may take is bounded before it is taken: connections, memory, a database's time."""

import asyncio
import base64
import json
import socket
import sqlite3
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection

import pytest
from starlette.testclient import TestClient

from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.service.app import make_app
from fedpn.service.body import Tally, read_body
from fedpn.service.decisions import Decisions
from fedpn.service.decode import to_png
from fedpn.service.library import Library
from fedpn.service.limits import Limits, Memory, Overfull, TooLarge
from fedpn.service.listen import make_server
from fedpn.service.writer import Writer

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def listening(app, limits, **options):
    """A server in a thread, with its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = make_server(app, "127.0.0.1", port, limits, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(30)


def connect(port, sent=b""):
    line = socket.create_connection(("127.0.0.1", port), timeout=20)
    line.sendall(sent)
    return line


def health(port):
    line = HTTPConnection("127.0.0.1", port, timeout=20)
    line.request("GET", "/healthz")
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status


def received(line):
    """All that comes until the other side closes."""
    parts = []
    while part := line.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_unfinished_headers_do_not_shut_the_service(pictures):
    limits = Limits(connections=16, head=1.0)
    with listening(make_app(Library([pictures]), limits=limits), limits) as port:
        held = [connect(port, HEAD + b"X-") for _ in range(60)]
        assert health(port) == 200, "the oldest made room"
        began = time.monotonic()
        for line in held:  # closed or reset
            with suppress(ConnectionResetError):
                assert received(line) == b""
            line.close()
        assert time.monotonic() - began < 10, "the others went when their time was over"


def test_a_second_request_has_the_same_time_for_its_headers(pictures):
    limits = Limits(head=0.5)
    with listening(make_app(Library([pictures]), limits=limits), limits) as port:
        line = connect(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" in line.recv(65536)
        line.sendall(b"GET /healthz")  # and no more
        began = time.monotonic()
        with suppress(ConnectionResetError):
            assert received(line) == b""
        assert time.monotonic() - began < 4
        line.close()


def test_headers_without_end_are_cut_off(pictures):
    limits = Limits(head=20.0)
    with listening(make_app(Library([pictures]), limits=limits), limits) as port:
        line, began = connect(port, HEAD), time.monotonic()
        with suppress(ConnectionResetError, BrokenPipeError):
            for i in range(200):
                line.sendall(b"X-%d: " % i + b"a" * 4096 + b"\r\n")
            received(line)
        assert time.monotonic() - began < 10 and health(port) == 200
        line.close()


def test_who_is_refused_early_hears_it_while_it_still_sends(pictures):
    body = b'{"client": "0", "inputs": [' + b"[]," * 2_700_000 + b"[]]}"
    limits = Limits()
    with listening(make_app(Library([pictures]), limits=limits), limits) as port:
        line = HTTPConnection("127.0.0.1", port, timeout=20)
        line.request("POST", "/v1/predict", body)
        answer = line.getresponse()
        assert answer.status == 413 and b"at most 4096 inputs" in answer.read()
        line.close()


def test_a_body_that_does_not_come_is_told_so(pictures):
    limits = Limits(seconds=0.5)
    with listening(make_app(Library([pictures]), limits=limits), limits) as port:
        line = connect(port, HEAD + b"Connection: close\r\nContent-Length: 100\r\n\r\n{")
        told = received(line)
        assert b" 408 " in told and b"did not come within 0.5 s" in told
        line.close()


def test_where_all_connections_are_at_work_the_next_is_told_so(pictures):
    limits = Limits(connections=2)
    app, wait = make_app(Library([pictures]), limits=limits), threading.Event()
    app.get("/slow")(lambda: wait.wait(20))
    with listening(app, limits) as port:
        asked = b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        busy = [connect(port, asked) for _ in range(2)]
        time.sleep(0.5)
        late = connect(port)
        told = received(late)
        assert b" 503 " in told and b"retry-after: 1" in told
        wait.set()
        assert all(b" 200 " in received(line) for line in busy)
        for line in [*busy, late]:
            line.close()


def test_inputs_are_counted_before_they_are_built(pictures):
    body = b'{"client": "0", "inputs": [' + b"[]," * 2_700_000 + b"[]]}"
    with TestClient(make_app(Library([pictures])), base_url="http://127.0.0.1") as service:
        tracemalloc.start()
        told = service.post("/v1/predict", content=body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (told.status_code, told.json()["error"]) == (
        413,
        "a request may have at most 4096 inputs",
    )
    assert peak < 6 * len(body), "2.7 million lists take 150 MB"


@pytest.mark.parametrize("piece", [b"[],", b'"ab",', b'{"a":0},', b"0.1,"])
def test_values_of_one_input_are_counted_as_well(pictures, piece):
    body = b'{"client": "0", "inputs": [[' + piece * 100_000 + b"0]]}"
    app = make_app(Library([pictures]), limits=Limits(memory=2**22))
    with TestClient(app, base_url="http://127.0.0.1") as service:
        told = service.post("/v1/predict", content=body)
        assert told.status_code == 413 and "MB of memory" in told.json()["error"]
        parts = [[0] * 28] * 28
        assert service.post("/v1/predict", json={"client": "0", "inputs": [parts]}).is_success
        assert app.state.service.memory.held == 0


def test_answers_are_counted_as_well(pictures, digits):
    limits = Limits(memory=2**22)
    inputs = [base64.b64encode(to_png(digits.x[0])).decode()] * 200
    app = make_app(Library([pictures]), limits=limits)
    with TestClient(app, base_url="http://127.0.0.1") as service:
        question = {"client": "0", "inputs": inputs, "explain": True}
        told = service.post("/v1/predict", json=question)
        assert told.status_code == 413 and "send its inputs in several" in told.json()["error"]


def test_requests_together_take_no_more_than_there_is():
    memory = Memory(100)
    with memory.lease() as first, memory.lease() as second:
        first.hold(70)
        with pytest.raises(Overfull):
            second.hold(40)
        second.hold(30)
        with pytest.raises(TooLarge, match="would take 1 MB"):
            second.hold(101)
    assert memory.held == 0


def test_a_tally_is_the_same_however_a_text_is_cut():
    values = [{"a": [1, 'x,[\\"{', None]}, ["\\", "ü,", [], {}], 3]
    text = json.dumps({"client": "a,b", "inputs": values}, ensure_ascii=False).encode()
    whole = Tally()
    whole.add(text)
    assert (whole.inputs, whole.depth) == (3, 0)
    for size in (1, 2, 3, 7):
        cut = Tally()
        for at in range(0, len(text), size):
            cut.add(text[at : at + size])
        assert (cut.inputs, cut.depth) == (whole.inputs, whole.depth)

    text += b" " * 2**16

    async def parts():
        yield text

    with Memory(10**7).lease() as lease:
        assert asyncio.run(read_body(parts(), 3, lease)) == text
        with pytest.raises(TooLarge, match="at most 2 inputs"):
            asyncio.run(read_body(parts(), 2, lease))


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b'{"inputs": [\xff\xfe]}', b"[" * 90_000])
def test_what_is_no_json_is_told_in_a_sentence(pictures, body):
    with TestClient(make_app(Library([pictures])), base_url="http://127.0.0.1") as service:
        told = service.post("/v1/predict", content=body)
        assert told.status_code == 422 and "Invalid JSON" in told.json()["error"]


def test_only_questions_may_be_large(service):
    told = service.post("/v1/reviews/1", content=b"[" + b"[]," * 60_000 + b"[]]")
    assert (told.status_code, "at most 65536 bytes" in told.text) == (413, True)


def test_a_locked_database_is_told_soon_and_to_be_tried_again(pictures, digits, tmp_path):
    decisions = Decisions(f"sqlite:///{tmp_path / 'd.db'}")
    app = make_app(Library([pictures]), decisions=decisions)
    question = {"client": "0", "inputs": digits.x[:1, 0].tolist()}
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as service:
        first = service.post("/v1/predict", json=question).json()["answers"][0]["id"]
        other = sqlite3.connect(tmp_path / "d.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        with ThreadPoolExecutor(8) as callers:
            asked = callers.map(lambda _: service.post("/v1/predict", json=question), range(8))
            told = [*asked, service.post(f"/v1/reviews/{first}", json={"label": "7"})]
        assert time.monotonic() - began < 8
        assert {(t.status_code, t.headers.get("retry-after")) for t in told} == {(503, "1")}
        assert all("try again" in t.json()["error"] for t in told)
        assert service.get("/healthz").is_success
        other.execute("ROLLBACK")
        other.close()
        after = service.post("/v1/predict", json=question)
        assert after.json()["answers"][0]["id"] == first + 1, "what was not told was not kept"
        assert app.state.service.worker.waiting == 0


def test_a_decision_that_cannot_be_written_is_nobody_elses_trouble(tmp_path):
    row = {
        "time": 0.0, "client": "a", "version": "v", "outcome": "stranger", "source": "nobody",
        "label": None, "guess": "x", "confidence": 0.1, "epistemic": 0.0, "aleatoric": 0.0,
        "total": 0.0, "own_share": None, "reason": "", "input": None,
    }  # fmt: skip
    decisions, saved, wait = Decisions(f"sqlite:///{tmp_path / 'd.db'}"), [], threading.Event()

    def after(last):
        saved.append(last)
        wait.wait(20)

    writer = Writer(decisions, after)
    first = writer.submit([row])
    while not saved:
        time.sleep(0.01)
    good, bad, more = (writer.submit([row | {"reason": why}]) for why in ("", "\ud800", ""))
    wait.set()
    assert [part.result(10) for part in (first, good, more)] == [[1], [2], [3]]
    assert isinstance(bad.exception(10), UnicodeEncodeError)
    writer.close(10)
    assert saved[-1] is True
    decisions.close()


SECRET = "a-long-secret-of-ones-own"


def test_wrong_tokens_are_slowed_and_the_right_one_is_heard_again(pictures):
    limits = Limits(mistakes=10, mistakes_per_second=2.0)
    app = make_app(Library([pictures]), token=SECRET, limits=limits)
    with TestClient(app, base_url="http://127.0.0.1") as service:
        right, wrong = ({"Authorization": f"Bearer {t}"} for t in (SECRET, "x" * 20))
        assert service.get("/v1/info", headers=right).is_success
        for _ in range(50):
            assert service.get("/v1/info").status_code == 401, "none is no wrong one"
        told = [service.get("/v1/info", headers=wrong) for _ in range(200)]
        looked_at = sum(t.status_code == 401 for t in told)
        assert 10 <= looked_at < 40 and told[-1].headers["retry-after"] == "1"
        assert service.get("/healthz").is_success
        time.sleep(1.0)
        assert service.get("/v1/info", headers=right).is_success


@pytest.mark.parametrize("token", ["ein-geheimer-Schlüssel", SECRET + "\n", " x" * 9])
def test_a_token_that_no_header_carries_is_refused_at_the_start(
    pictures, token, monkeypatch, capsys
):
    with pytest.raises(UserError, match="header cannot carry"):
        make_app(Library([pictures]), token=token)
    monkeypatch.setenv("FEDPN_TOKEN", token)
    assert main(["serve", str(pictures), "--decisions", "none"]) == 2
    assert "FEDPN_TOKEN" in capsys.readouterr().err
