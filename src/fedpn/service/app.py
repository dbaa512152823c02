"""The HTTP service: routes, and what each of them tells."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

import fedpn
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.service import schema
from fedpn.service.counters import Counters
from fedpn.service.decisions import Decisions
from fedpn.service.decode import decode
from fedpn.service.drift import WINDOW, drift
from fedpn.service.guard import Guard
from fedpn.service.library import Library
from fedpn.service.limits import Limits
from fedpn.service.samples import samples
from fedpn.service.worker import Busy, Job, Worker
from fedpn.serving.card import card

POLL = 2.0  # seconds between looks for new models
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": schema.Problem, "description": "the inputs are not what the model takes"},
    401: {"model": schema.Problem, "description": "a token is needed"},
    403: {"model": schema.Problem, "description": "asked from elsewhere"},
    404: {"model": schema.Problem, "description": "there is no such thing"},
    413: {"model": schema.Problem, "description": "too large"},
    422: {"model": schema.Problem, "description": "the request cannot be read"},
    429: {"model": schema.Problem, "description": "too much waits; try again"},
    503: {"model": schema.Problem, "description": "not now"},
}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Question"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "client": {"type": "string"},
                        "explain": {"type": "boolean"},
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        },
                    },
                }
            },
        },
    }
}
Client = Annotated[str | None, Query(max_length=1000)]
Count = Annotated[int, Query(ge=1, le=1000)]
Number = Annotated[int, Path(ge=0, le=2**53)]


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

    async def answer(self, question: schema.Question, client: str) -> list[dict[str, Any]]:
        """Puts a question to the worker, and waits."""
        about = self.library.about(client)
        if len(question.inputs) > self.limits.rows:
            raise Refused(413, f"a request may have at most {self.limits.rows} inputs")
        if not question.inputs:
            return []
        share = None if question.own_share == "auto" else float(question.own_share)
        rows = await asyncio.to_thread(
            decode, question.inputs, about.blueprint.shape, about.features
        )
        try:
            done = self.worker.submit(Job(client, rows, share, question.explain))
            return await asyncio.wait_for(asyncio.wrap_future(done), self.limits.seconds)
        except Busy:
            raise Refused(429, "more waits than is taken; try again") from None
        except TimeoutError:
            raise Refused(503, f"no answer within {self.limits.seconds:g} s") from None


def make_app(
    library: Library,
    token: str = "",
    decisions: Decisions | None = None,
    keep_inputs: bool = False,
    limits: Limits | None = None,
) -> FastAPI:
    """The whole application; `token` guards all but the page and the health checks."""
    limits, counters = limits or Limits(), Counters()
    worker = Worker(library, limits, counters, decisions, keep_inputs)
    service = Service(library, worker, counters, decisions, limits, keep_inputs)
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
    app.add_middleware(Guard, token=token, most=limits.body, counters=counters)
    _tell_problems(app)
    _add_health(app, service)
    _add_answers(app, service)
    _add_decisions(app, service)
    return app


def _tell_problems(app: FastAPI) -> None:
    """Every problem is a sentence; none tells of files or code."""

    def say(status: int, words: str) -> JSONResponse:
        head = {"Retry-After": "1"} if status == 429 else None
        return JSONResponse({"error": words}, status, headers=head)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return say(error.status, error.words)

    @app.exception_handler(UserError)
    async def mistaken(_: Request, error: UserError) -> JSONResponse:
        return say(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return say(422, _first(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return say(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return say(500, f"the service failed ({type(error).__name__}); its log tells more")


def _first(errors: Any) -> str:
    """The first of some problems in a sentence."""
    for error in errors:
        place = ".".join(str(part) for part in error.get("loc", ()) if part != "body")
        return f"{place or 'the request'}: {error.get('msg', 'cannot be read')}"
    return "the request cannot be read"


def _add_health(app: FastAPI, service: Service) -> None:
    page = resources.files("fedpn.service") / "static" / "page.html"

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def home() -> str:
        return page.read_text(encoding="utf-8")

    @app.get("/healthz", response_model=schema.Done)
    def healthy() -> Any:
        return {"done": True}

    @app.get("/readyz", response_model=schema.Done)
    def ready() -> Any:
        if not service.worker.thread.is_alive() or service.worker.closed:
            raise Refused(503, "the worker has ended")
        return {"done": True}

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> str:
        gauges: dict[str, dict[str, float]] = {
            "fedpn_waiting_rows": {"": float(service.worker.waiting)}
        }
        if service.decisions is not None:
            found = {name: _drift(service, name) for name in list(service.library.open)}
            for key in ("strangers", "abstentions"):
                gauges[f"fedpn_{key}_share"] = {n: d[key]["share"] for n, d in found.items()}
            own = {n: d["own_share"] for n, d in found.items() if d["own_share"] is not None}
            gauges["fedpn_own_share"] = own
            gauges["fedpn_drift_alert"] = {n: float(len(d["alerts"])) for n, d in found.items()}
        return service.counters.text(gauges)

    @app.get("/v1/info", response_model=schema.Info)
    def info() -> Any:
        return {
            "version": fedpn.__version__,
            "clients": len(service.library.clients),
            "keeps_decisions": service.decisions is not None,
            "keeps_inputs": service.keep_inputs,
            "problem": service.library.problem,
            "limits": asdict(service.limits),
        }

    @app.get("/v1/clients", response_model=list[schema.Client])
    def clients() -> Any:
        return [_about(service, name) for name in service.library.clients]


def _about(service: Service, name: str) -> dict[str, Any]:
    about, opened = service.library.about(name), service.library.open.get(name)
    return {
        "name": name,
        "dataset": about.provenance.get("dataset", ""),
        "algorithm": about.provenance.get("algorithm", ""),
        "classes": list(about.classes),
        "features": list(about.features),
        "shape": list(about.blueprint.shape),
        "rule": about.routing.rule if about.routing else None,
        "promise": opened.predictor.bundle.standards.words() if opened else "",
        "can_roll_back": opened is not None and opened.before is not None,
    }


def _add_answers(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", response_model=schema.Answers, openapi_extra=BODY)
    async def predict(request: Request) -> Any:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            question = await _from_form(request, service.limits.rows)
        else:
            try:
                question = schema.Question.model_validate_json(await request.body())
            except ValidationError as error:
                raise Refused(422, _first(error.errors())) from None
        client = service.client(question.client)
        return {"client": client, "answers": await service.answer(question, client)}

    @app.get("/v1/samples", response_model=list[schema.Sample])
    def tries(client: Client = None) -> Any:
        name = service.client(client)
        return samples(service.library[name].predictor.bundle, service.library.folder(name))

    @app.get("/v1/card", response_model=schema.Card)
    def model_card(client: Client = None) -> Any:
        name = service.client(client)
        file = service.library.folder(name) / "metrics.json"
        figures = store.read_json(file) if file.exists() else None
        return {"text": card(service.library[name].predictor.bundle, figures)}

    @app.post("/v1/rollback", response_model=schema.Done)
    def roll_back(client: Client = None) -> Any:
        name = service.client(client)
        if not service.library.roll_back(name):
            raise Refused(404, "there are no models before these")
        return {"done": True}


async def _from_form(request: Request, most: int) -> schema.Question:
    """Pictures as files."""
    try:
        async with request.form(max_files=most, max_fields=16) as form:
            files = [value for value in form.getlist("files") if not isinstance(value, str)]
            inputs = [await file.read() for file in files]
            client, wordy = form.get("client"), str(form.get("explain", "")).lower()
    except HTTPException as error:
        raise Refused(422, str(error.detail)) from None
    if not inputs:
        raise Refused(422, "files: none was sent")
    return schema.Question.model_construct(
        client=str(client) if client is not None else None,
        inputs=inputs,
        own_share="auto",
        explain=wordy in ("1", "true"),
    )


def _add_decisions(app: FastAPI, service: Service) -> None:
    @app.get("/v1/decisions", response_model=list[schema.Decided])
    def decided(client: Client = None, count: Count = 50) -> Any:
        return service.kept().last(client, count)

    @app.get("/v1/reviews", response_model=list[schema.Decided])
    def reviews(client: Client = None, count: Count = 50) -> Any:
        return service.kept().to_review(client, count)

    @app.post("/v1/reviews/{number}", response_model=schema.Done)
    def review(number: Number, said: schema.Review) -> Any:
        found = service.kept().find(number)
        if found is None:
            raise Refused(404, "there is no such decision")
        classes = service.library.about(service.client(found["client"])).classes
        if said.label not in classes:
            raise Refused(400, f"the classes are {', '.join(classes[:40])}")
        service.kept().review(number, said.label)
        return {"done": True}

    @app.get("/v1/drift", response_model=schema.Drift)
    def drifts(client: Client = None) -> Any:
        return _drift(service, service.client(client))


def _drift(service: Service, client: str) -> dict[str, Any]:
    recent = service.kept().recent(client, WINDOW)
    return drift(recent, service.library[client].predictor.bundle)
