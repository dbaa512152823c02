"""The routes of the service, and what each of them tells."""

from dataclasses import asdict
from importlib import resources
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

import fedpn
from fedpn.core import store
from fedpn.data.recipe import Recipe
from fedpn.service import schema
from fedpn.service.body import parse, read_body
from fedpn.service.decode import unpack
from fedpn.service.drift import CHANCES, WINDOW, drift
from fedpn.service.guard import SMALL
from fedpn.service.samples import as_sample, examples, samples
from fedpn.service.state import Refused, Service, first_problem
from fedpn.serving.card import card

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
                        "version": {"type": "string"},
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


def add_health(app: FastAPI, service: Service) -> None:
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
            for key in CHANCES:
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
            "models": {name: service.library.known(name)[1] for name in service.library.clients},
            "keeps_decisions": service.decisions is not None,
            "keeps_inputs": service.keep_inputs and service.decisions is not None,
            "problem": service.library.problem,
            "limits": asdict(service.limits),
        }

    @app.get("/v1/clients", response_model=list[schema.Client])
    def clients() -> Any:
        return [_about(service, name) for name in service.library.clients]


def _about(service: Service, name: str) -> dict[str, Any]:
    opened = service.library.open.get(name)
    about, version = (opened.about, opened.version) if opened else service.library.known(name)
    before = opened.before.bundle.version if opened and opened.before else None
    return {
        "name": name,
        "version": version,
        "dataset": about.provenance.get("dataset", ""),
        "algorithm": about.provenance.get("algorithm", ""),
        "classes": list(about.classes),
        "features": list(about.features),
        "columns": _columns(about.recipe),
        "shape": list(about.blueprint.shape),
        "rule": about.routing.rule if about.routing else None,
        "promise": opened.predictor.bundle.standards.words() if opened else "",
        "can_roll_back": before is not None,
        "before": before,
    }


def _columns(recipe: Recipe | None) -> list[dict[str, Any]] | None:
    if recipe is None:
        return None
    return [{"name": c.name, "kind": c.kind, "values": list(c.names)} for c in recipe.columns]


def add_answers(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", response_model=schema.Answers, openapi_extra=BODY)
    async def predict(request: Request) -> Any:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        with service.memory.lease() as lease:
            if kind == "multipart/form-data":
                size = request.headers.get("content-length", service.limits.body)
                lease.hold(3 * int(size))
                question = await _from_form(request, service.limits.rows)
            else:
                body = await read_body(request.stream(), service.limits.rows, lease)
                large = len(body) > SMALL
                question = await service.in_turn(_from_json, body, large=large)
            text = await service.answer(question, lease)
            return Response(text, media_type="application/json")

    @app.get("/v1/samples", response_model=list[schema.Sample])
    def tries(client: Client = None) -> Any:
        models = service.library[service.client(client)]
        bundle = models.predictor.bundle
        return samples(bundle, models.beside(lambda folder: examples(bundle, folder), []))

    @app.get("/v1/card", response_model=schema.Card)
    def model_card(client: Client = None) -> Any:
        models = service.library[service.client(client)]
        text = card(models.predictor.bundle, models.beside(_figures, None))
        return {"version": models.version, "text": text}

    @app.post("/v1/rollback", response_model=schema.RolledBack)
    def roll_back(client: Client = None, version: Client = None) -> Any:
        now = service.library.roll_back(service.client(client), version)
        if now is None:
            raise Refused(404, "there are no models before these")
        if version not in (None, now.version):
            raise Refused(409, f"{now.version} answers, and {version} is not the version before")
        return {"done": True, "version": now.version}


def _figures(folder: Folder) -> Any:
    """What was measured of the models, where the folder is a run's."""
    if not (folder / "metrics.json").exists():
        return None
    store.verify(folder, ["metrics.json"])
    return store.read_json(folder / "metrics.json")


def _from_json(body: bytearray) -> schema.Question:
    try:
        return schema.Question.model_validate(parse(body))
    except ValidationError as error:
        raise Refused(422, first_problem(error.errors())) from None
    except ValueError as error:
        raise Refused(422, f"the request: {error}") from None


async def _from_form(request: Request, most: int) -> schema.Question:
    """Pictures as files."""
    try:
        async with request.form(max_files=most, max_fields=16) as form:
            files = [value for value in form.getlist("files") if not isinstance(value, str)]
            inputs = [await file.read() for file in files]
            client, wordy = form.get("client"), str(form.get("explain", "")).lower()
            version = form.get("version")
    except HTTPException as error:
        raise Refused(422, str(error.detail)) from None
    except ValueError as error:  # the parser of forms has words of its own
        raise Refused(422, f"the form cannot be read: {error}") from None
    if not inputs:
        raise Refused(422, "files: none was sent")
    return schema.Question.model_construct(
        client=str(client) if client is not None else None,
        version=str(version) if version is not None else None,
        inputs=inputs,
        own_share="auto",
        explain=wordy in ("1", "true"),
    )


def add_decisions(app: FastAPI, service: Service) -> None:
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
        classes = service.library.known(service.client(found["client"]))[0].classes
        if said.label not in classes:
            raise Refused(400, f"the classes are {', '.join(classes[:40])}")
        if not service.kept().review(number, said.label, said.instead):
            truth = (service.kept().find(number) or found)["truth"]
            already = "nobody has labelled it" if truth is None else f"it is labelled {truth!r}"
            raise Refused(409, f"decision {number} is not as you saw it: {already}")
        return {"done": True}

    @app.get("/v1/decisions/{number}/input", response_model=schema.Sample)
    def shown(number: Number) -> Any:
        found = service.kept().find(number)
        if found is None or found["input"] is None:
            raise Refused(404, "this input was not kept (fedpn serve --keep-inputs)")
        about, _ = service.library.known(service.client(found["client"]))
        return as_sample(f"decision {number}", unpack(found, about.blueprint.shape))

    @app.get("/v1/drift", response_model=schema.Drift)
    def drifts(client: Client = None) -> Any:
        return _drift(service, service.client(client))


def _drift(service: Service, client: str) -> dict[str, Any]:
    models = service.library[client]
    recent = service.kept().recent(client, models.version, WINDOW)
    bundle = models.predictor.bundle
    return {"version": models.version, **drift(recent, bundle, service.worker.watches.of(bundle))}
