"""Several jobs at a time: what fails, what needs it, and what is stopped."""

import os
import signal
import time

from fedpn.federated.listener import Stopped
from fedpn.runs.studies import scheduler


def _nothing(listener):
    return None


def _fails(listener):
    raise ValueError("broken on purpose")


def _dies(listener):
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_fails_does_not_stop_the_others():
    jobs = [
        scheduler.Job("bad", _fails),
        scheduler.Job("dead", _dies),
        scheduler.Job("good", _nothing),
        scheduler.Job("after", _nothing, needs=frozenset(["good"])),
    ]
    heard = []
    wrong = scheduler.play(
        jobs, 2, lambda job, done, words="": heard.append((job.name, words)), bool
    )
    assert wrong == {
        "bad": "ValueError: broken on purpose",
        "dead": "its process ended with status -9",
    }
    assert heard.index(("good", "done")) < heard.index(("after", "done"))


def test_what_needs_a_failed_job_is_not_begun():
    jobs = [
        scheduler.Job("bad", _fails),
        scheduler.Job("branch", _nothing, needs=frozenset(["bad"])),
        scheduler.Job("figure", _nothing, after=frozenset(["bad", "branch"])),
    ]
    heard = []
    wrong = scheduler.play(
        jobs, 2, lambda job, done, words="": heard.append((job.name, words)), bool
    )
    assert wrong["branch"] == "needs bad, which failed"
    assert ("figure", "done") in heard


def test_stopping_lets_no_other_begin():
    heard = []
    jobs = [scheduler.Job(name, _nothing) for name in "abc"]
    listen = lambda job, done, words="": heard.append(job.name)  # noqa: E731
    assert scheduler.play(jobs, 1, listen, lambda: True) == {}
    assert heard == []


def _waits_for_the_stop(listener):
    while not listener.stopping():
        time.sleep(0.01)
    raise Stopped("after round 1")


def test_who_is_stopped_has_not_failed():
    heard = []
    listen = lambda job, done, words="": heard.append(words)  # noqa: E731
    began = time.monotonic()
    stop = lambda: time.monotonic() > began + 0.3  # noqa: E731
    assert scheduler.play([scheduler.Job("long", _waits_for_the_stop)], 1, listen, stop) == {}
    assert heard[-1] == "stopped after round 1"


def _tells(listener):
    raise ValueError(os.environ["FEDPN_TOLD"])


def test_workers_have_the_environment_of_now(monkeypatch):
    """The server that forks them was started in another."""
    for value in ("first", "second"):
        monkeypatch.setenv("FEDPN_TOLD", value)
        wrong = scheduler.play([scheduler.Job("tells", _tells)], 1, lambda *told: None, bool)
        assert wrong == {"tells": f"ValueError: {value}"}
