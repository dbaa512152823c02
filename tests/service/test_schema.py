"""The service keeps to its own OpenAPI: no failure, no status that is not documented."""

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

from fedpn.service.app import make_app
from fedpn.service.decisions import Decisions
from fedpn.service.library import Library

HELD_TO = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.response_schema_conformance,
]
CALM = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_requests_of_all_kinds_are_answered_as_documented(pictures, tmp_path):
    decisions = Decisions(f"sqlite:///{tmp_path / 'decisions.db'}")
    app = make_app(Library([pictures]), decisions=decisions, keep_inputs=True)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "127.0.0.1"})
    played = []
    for result in schema.get_all_operations():
        operation = result.ok()

        @CALM
        @given(case=operation.as_strategy())
        def play(case):
            response = case.call(headers={"Host": "127.0.0.1"})
            case.validate_response(response, checks=HELD_TO)

        play()
        played.append(operation.label)
    app.state.service.worker.close()
    decisions.close()
    assert len(played) == 14, played
