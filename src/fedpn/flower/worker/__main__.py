"""A node's worker: takes one message after the other from its SuperNode, and answers it.

    python -m fedpn.flower.worker ADDRESS STATE

Started, watched and started anew by `fedpn flower supernode`.
"""

import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import httpx
from flwr.app import Message

from fedpn.core.errors import UserError
from fedpn.flower.app import shelf
from fedpn.flower.app.client_app import app
from fedpn.flower.app.told import Told
from fedpn.flower.place import WORKER_SECRET
from fedpn.flower.weigh import weigh
from fedpn.flower.worker.code import Code
from fedpn.flower.worker.diary import Diary
from fedpn.flower.worker.runtime import Gone, Job, Runtime, told_of
from fedpn.flower.worker.unfinished import Unfinished

START = 120.0  # seconds for the SuperNode to come up
PAUSE = 0.25  # seconds between questions for work; they go to this machine alone


class Worker:
    """Answers messages until its SuperNode is gone."""

    def __init__(self, address: str, state: Path) -> None:
        self.runtime = Runtime(address, (state / WORKER_SECRET).read_bytes())
        self.diary = Diary(state)
        self.unfinished = Unfinished(state / "unfinished")
        self.code = Code(state)

    def live(self) -> None:
        self.diary.write("starting")
        import fedpn.flower.app.client  # noqa: F401  PyTorch, before the first message

        shelf.keep()  # data and models stay from message to message
        self._wait()
        self._give_up()
        self.diary.write("ready")
        while True:
            token = self.runtime.next()
            if token is None:
                time.sleep(PAUSE)
            else:
                self._work(token)

    def _wait(self) -> None:
        """Waits for the SuperNode, which starts at the same time."""
        until = time.monotonic() + START
        while not self.runtime.answers():
            if time.monotonic() > until:
                raise Gone(f"no SuperNode in {START:.0f} s")
            time.sleep(PAUSE)

    def _give_up(self) -> None:
        """Whoever waits for what another worker died over need not wait on."""
        left = self.unfinished.read()
        self.unfinished.done()
        if left is not None:
            with suppress(Exception):  # it was given up already, or what was left is damaged
                self.runtime.give_up(*left, "its worker ended in the middle of the work")

    def _work(self, token: str) -> None:
        try:
            with self.runtime.job(token) as job:
                self.unfinished.begin(token, told_of(job.message))
                self._answer(job)
                self.unfinished.done()
        except (httpx.HTTPError, Gone) as error:
            # The run was stopped, or the SuperNode is about to end: nobody waits for this.
            self.unfinished.done()
            self.diary.say(f"a message could not be answered: {error}")

    def _answer(self, job: Job) -> None:
        began, kind = time.monotonic(), job.message.metadata.message_type
        self.diary.begin(kind, job.message.content, weigh(job.message.content))
        reply: Message | None = None
        why = "it failed; its log tells more"
        try:
            if not self.code.load(job.fab):
                self._start_anew(job)
            reply = app(job.message, job.context)
        except UserError as error:
            self.diary.say(str(error))
            why = str(error) if isinstance(error, Told) else why
        except Exception:
            traceback.print_exc()
        if reply is None:
            self.runtime.give_up(job.token, told_of(job.message), why)
        else:
            self.runtime.answer(job, reply)
        content = None if reply is None else reply.content
        sent = 0 if content is None else weigh(content)
        self.diary.end(kind, content, sent, time.monotonic() - began)

    def _start_anew(self, job: Job) -> None:
        """Modules of two runs do not go together; the server will ask again."""
        self.diary.say("this run brings other code than the last: starting anew for it")
        self.runtime.give_up(job.token, told_of(job.message), "it starts anew for the run's code")
        self.unfinished.done()
        sys.exit(0)


def main() -> None:
    address, state = sys.argv[1], Path(sys.argv[2])
    worker = Worker(address, state)
    try:
        worker.live()
    except Gone:
        worker.diary.write("gone")
        sys.exit(0)  # who started both knows
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
