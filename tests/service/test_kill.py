"""`kill -9` under load: no decision that was answered is lost."""

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

import pytest


@pytest.mark.slow
def test_what_was_answered_outlives_a_kill(pictures, digits, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fedpn.cli.main", "serve", str(pictures)]
    options = ["--port", str(port), "--decisions", str(tmp_path / "d.db")]
    with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as process:
        answered: list[int] = []
        body = json.dumps({"client": "0", "inputs": digits.x[:2, 0].tolist()})

        def call():
            line = HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                while True:
                    line.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
                    told = json.loads(line.getresponse().read())
                    answered.extend(answer["id"] for answer in told["answers"])
            except (OSError, ValueError, KeyError):
                line.close()  # the service is gone

        _wait(port, process)
        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        while len(answered) < 60 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for thread in threads:
            thread.join()
    with sqlite3.connect(tmp_path / "d.db") as database:
        kept = {number for (number,) in database.execute("SELECT id FROM decisions")}
    database.close()
    assert len(answered) >= 60 and set(answered) <= kept
    assert len(set(answered)) == len(answered), "each decision has a number of its own"


def _wait(port, process):
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service ended")
