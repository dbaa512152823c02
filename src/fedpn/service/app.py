"""The HTTP service: the application, its life, and how it tells of problems."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import fedpn
from fedpn.core.errors import UserError
from fedpn.service import schema
from fedpn.service.counters import Counters
from fedpn.service.decisions import UNREACHABLE, Decisions
from fedpn.service.guard import Guard, Late, check_token
from fedpn.service.library import Library, Unusable
from fedpn.service.limits import Limits, Memory, Overfull, TooLarge
from fedpn.service.routes import add_answers, add_decisions, add_health
from fedpn.service.state import Refused, Service, first_problem
from fedpn.service.worker import Worker

POLL = 2.0  # seconds between looks for new models
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": schema.Problem, "description": "the inputs are not what the model takes"},
    401: {"model": schema.Problem, "description": "a token is needed"},
    403: {"model": schema.Problem, "description": "asked from elsewhere"},
    404: {"model": schema.Problem, "description": "there is no such thing"},
    409: {"model": schema.Problem, "description": "something else was there first"},
    413: {"model": schema.Problem, "description": "too large"},
    422: {"model": schema.Problem, "description": "the request cannot be read"},
    408: {"model": schema.Problem, "description": "the request did not come in time"},
    429: {"model": schema.Problem, "description": "too much waits; try again"},
    503: {"model": schema.Problem, "description": "not now"},
}


def make_app(
    library: Library,
    token: str = "",
    decisions: Decisions | None = None,
    keep_inputs: bool = False,
    limits: Limits | None = None,
) -> FastAPI:
    """The whole application; `token` guards all but the page and the health checks."""
    limits, counters = limits or Limits(), Counters()
    check_token(token)
    worker = Worker(limits, counters, decisions)
    memory = Memory(limits.memory)
    service = Service(library, worker, counters, decisions, limits, keep_inputs, memory)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(POLL):
            library.refresh()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        watcher = threading.Thread(target=watch, name="fedpn-watch", daemon=True)
        watcher.start()
        yield
        stop.set()
        await asyncio.to_thread(worker.close)
        service.readers.shutdown()
        if decisions is not None:
            decisions.close()

    app = FastAPI(
        title="fedpn",
        version=fedpn.__version__,
        description=fedpn.__doc__ or "",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
    )
    app.state.service = service
    app.add_middleware(Guard, token=token, limits=limits, counters=counters)
    _tell_problems(app)
    add_health(app, service)
    add_answers(app, service)
    add_decisions(app, service)
    return app


def _tell_problems(app: FastAPI) -> None:
    """Every problem is a sentence; none tells of files or code."""

    def say(status: int, words: str) -> JSONResponse:
        head = {"Retry-After": "1"} if status in (429, 503) else None
        return JSONResponse({"error": words}, status, headers=head)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return say(error.status, error.words)

    @app.exception_handler(UserError)
    async def mistaken(_: Request, error: UserError) -> JSONResponse:
        return say(400, str(error))

    @app.exception_handler(Unusable)
    async def unusable(_: Request, error: Unusable) -> JSONResponse:
        return say(503, str(error))

    @app.exception_handler(TooLarge)
    async def large(_: Request, error: TooLarge) -> JSONResponse:
        return say(413, str(error))

    @app.exception_handler(Overfull)
    async def overfull(_: Request, error: Overfull) -> JSONResponse:
        return say(503, "other requests take all memory that there is; try again")

    @app.exception_handler(Late)
    async def late(_: Request, error: Late) -> JSONResponse:
        return say(408, str(error))

    async def unreachable(_: Request, error: Exception) -> JSONResponse:
        return say(503, "decisions cannot be reached now; try again")

    for kind in UNREACHABLE:
        app.add_exception_handler(kind, unreachable)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return say(422, first_problem(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return say(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return say(500, f"the service failed ({type(error).__name__}); its log tells more")
