"""What the routes of a service share: its models, its worker, its decisions, its refusals."""

import asyncio
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedpn.service import schema
from fedpn.service.body import too_many
from fedpn.service.counters import Counters
from fedpn.service.decisions import Decisions
from fedpn.service.decode import decode, pack
from fedpn.service.library import Answerer, Library
from fedpn.service.limits import Lease, Limits, Memory
from fedpn.service.worker import Busy, Job, Worker
from fedpn.service.writer import Unkept
from fedpn.serving.bundle import About

T = TypeVar("T")
FEW = 4  # inputs that are read and written at once, unless they are pictures
CLASS, ANSWER = 160, 4000  # bytes of a class's probability, and of all else in an answer


class Refused(Exception):  # noqa: N818
    """A request that is answered with a sentence."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


@dataclass
class Service:
    """What the routes share."""

    library: Library
    worker: Worker
    counters: Counters
    decisions: Decisions | None
    limits: Limits
    keep_inputs: bool
    memory: Memory
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "fedpn-read"))

    def client(self, name: str | None) -> str:
        """The client that is meant, where that can be told."""
        names = self.library.clients
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            raise Refused(400, f"say which client: {', '.join(names[:12])}")
        if name not in names:
            raise Refused(404, "there is no such client; GET /v1/clients lists them")
        return name

    def kept(self) -> Decisions:
        if self.decisions is None:
            raise Refused(404, "this service keeps no decisions (fedpn serve --decisions)")
        return self.decisions

    async def answer(self, question: schema.Question, lease: Lease) -> str:
        """Puts a question to the worker, and waits: one version of the models does it all.

        Returns JSON, whose memory is reserved as well.
        """
        models = await self._models(self.client(question.client))
        if question.version not in (None, models.version):
            raise Refused(
                409,
                f"the models of client {models.client} are of version {models.version} now, and "
                f"this question is for {question.version}; GET /v1/clients tells what they take",
            )
        if len(question.inputs) > self.limits.rows:
            raise Refused(413, too_many(self.limits.rows))
        told: dict[str, Any] = {"client": models.client, "version": models.version}
        told |= {"remarks": [], "answers": []}
        if not question.inputs:
            return json.dumps(told)
        lease.hold(lease.held + _cost(question, models.about))
        few = question.inputs[: FEW + 1]
        large = len(few) > FEW or any(isinstance(one, str | bytes) for one in few)
        job, remarks = await self.in_turn(self._read, question, models, large=large)
        try:
            done = asyncio.wrap_future(self.worker.submit(job))
            answers = await asyncio.wait_for(done, self.limits.seconds)
        except Busy:
            raise Refused(429, "more waits than is taken; try again") from None
        except Unkept:
            raise Refused(503, "decisions cannot be written now; try again") from None
        except TimeoutError:
            raise Refused(503, f"no answer within {self.limits.seconds:g} s") from None
        told |= {"remarks": remarks, "answers": answers}
        return await self.in_turn(json.dumps, told, large=len(answers) > FEW)

    async def in_turn(self, work: Callable[..., T], *arguments: Any, large: bool) -> T:
        """Reading and writing: of what is large a few at once, beside the event loop."""
        if not large:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *arguments)

    async def _models(self, client: str) -> Answerer:
        """The version of a client's models that answers now; opening it may take a while."""
        opened = self.library.open.get(client)
        if opened is not None:
            return opened
        return await asyncio.to_thread(self.library.__getitem__, client)

    def _read(self, question: schema.Question, models: Answerer) -> tuple[Job, list[str]]:
        about = models.about
        found = decode(question.inputs, about.blueprint.shape, about.features, about.recipe)
        share = None if question.own_share == "auto" else float(question.own_share)
        keep = self.keep_inputs and self.decisions is not None
        kept = [pack(given, about.features) for given in found.given] if keep else []
        job = Job(models, found.rows, share, question.explain, found.faults, kept)
        return job, list(found.remarks)


def _cost(question: schema.Question, about: About) -> int:
    """The memory that inputs as arrays, and answers with their JSON, take at most."""
    views = 3 if question.explain else 1
    size = math.prod(about.blueprint.shape)
    return len(question.inputs) * (16 * size + views * CLASS * len(about.classes) + ANSWER)


def first_problem(errors: Any) -> str:
    """The first of some problems in a sentence."""
    for error in errors:
        place = ".".join(str(part) for part in error.get("loc", ()) if part != "body")
        return f"{place or 'the request'}: {error.get('msg', 'cannot be read')}"
    return "the request cannot be read"
