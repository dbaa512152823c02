"""Downloads, from a real server on this machine that behaves well and badly."""

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.sources import download
from fedpn.data.sources.datasets import find, get, load
from fedpn.data.sources.publishers import PUBLISHERS


class Server(ThreadingHTTPServer):
    """Serves `files`; the behaviours in `faults` are for its first requests, in order."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.faults, self.requests = {}, [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        fault = self.server.faults.pop(0) if self.server.faults else "whole"
        content = self.server.files.get(self.path.removeprefix("/"))
        if content is None or fault == "missing":
            return self.send_error(404)
        if fault == "busy":
            return self.send_error(503)
        size = len(content)
        if fault == "cut":
            content = content[: size // 2]
        if fault == "changed":
            content = bytes([content[0] ^ 1]) + content[1:]
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(content)
        return None

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch, empty_place):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


NAMES = ["mnist", "fashionmnist", "cifar10", "cifar100", "emnist", "svhn", "organcmnist"]


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_download_gives_the_publishers_rows(name, tiny, server, cache):
    small = tiny(name)
    server.files = small.files
    dataset = load(name, server.url)
    np.testing.assert_array_equal(dataset.x, small.images)
    np.testing.assert_array_equal(dataset.y, small.labels)
    assert dataset.x.dtype == np.uint8
    assert sorted(path.name for path in cache.iterdir()) == [f"{name}.npz"]


def test_letters_that_mean_something_else_are_refused(tiny, server, monkeypatch):
    server.files = tiny("emnist").files
    other = replace(PUBLISHERS["emnist"], classes=tuple("0123456789"))
    monkeypatch.setitem(PUBLISHERS, "emnist", other)
    with pytest.raises(UserError, match=r"'emnist' name the classes 0, 1, .*, t and should name 0"):
        get("emnist", server.url)
    assert find("emnist") is None


def test_what_was_fetched_once_is_not_fetched_again(tiny, server):
    server.files = tiny("mnist").files
    first = load("mnist", server.url)
    asked = len(server.requests)
    np.testing.assert_array_equal(load("mnist", server.url).x, first.x)
    assert len(server.requests) == asked == 4


@pytest.mark.parametrize(
    ("faults", "reason", "requests"),
    [
        (["cut"] * 9, "no whole answer in 3 tries", 3),
        (["changed"] * 9, "its checksum was wrong 3 times", 3),
        (["busy"] * 9, "the server answers 503", 3),
        (["missing"], "the server answers 404", 1),
    ],
)
def test_nothing_half_written_is_taken_for_whole(faults, reason, requests, tiny, server, cache):
    server.files, server.faults = tiny("cifar10").files, faults
    with pytest.raises(UserError) as caught:
        get("cifar10", server.url)
    message = str(caught.value)
    assert reason in message
    assert f"{server.url}/cifar-10-binary.tar.gz" in message  # what to fetch
    assert str(cache / "cifar10") in message  # where to put it
    assert len(server.requests) == requests
    assert find("cifar10") is None
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("faults", [["cut"], ["busy", "changed"], ["cut", "cut"]])
def test_a_download_is_tried_again(faults, tiny, server):
    small = tiny("mnist")
    server.files, server.faults = small.files, list(faults)
    np.testing.assert_array_equal(load("mnist", server.url).y, small.labels)
    assert len(server.requests) == 4 + len(faults)


def test_off_line_one_sentence_says_what_to_fetch_and_where_to_put_it(tiny, server, cache):
    tiny("mnist")
    server.server_close()  # nobody listens any more
    with pytest.raises(UserError) as caught:
        load("mnist", server.url)
    message = str(caught.value)
    assert "\n" not in message
    assert "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz" in message
    assert message.endswith(f"put it into {cache / 'mnist'}")


def test_files_put_there_by_hand_are_taken(tiny, empty_place, cache):
    small = tiny("svhn")
    place = cache / "svhn"
    place.mkdir(parents=True)
    for file, content in small.files.items():
        (place / file).write_bytes(content)
    np.testing.assert_array_equal(load("svhn").y, small.labels)
    assert (place / "train_32x32.mat").exists()  # the user's files stay


def test_files_put_there_by_hand_are_checked(tiny, empty_place, cache):
    small = tiny("cifar10")
    place = cache / "cifar10"
    place.mkdir(parents=True)
    (place / "cifar-10-binary.tar.gz").write_bytes(small.files["cifar-10-binary.tar.gz"][:-9])
    with pytest.raises(UserError, match=r"cifar-10-binary\.tar\.gz has the md5 .* fetch it again"):
        load("cifar10")
    assert find("cifar10") is None


def test_the_progress_bar_does_what_pooch_asks(tiny, server, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    server.files = tiny("cifar10").files
    assert get("cifar10", server.url).is_file()
