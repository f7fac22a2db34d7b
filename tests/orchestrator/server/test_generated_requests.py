"""Requests made by a generator from the API's own document; none may be too much for it."""

import hypothesis
import pytest
from fastapi import FastAPI
from serving import Served

from fleetrank.orchestrator.server.api import api

_EXAMPLES = 12
"""Per path: what is computed takes the server some tenths of a second each."""


def _document() -> dict[str, object]:
    app = FastAPI()
    app.include_router(api)
    return app.openapi()


@pytest.mark.parametrize("path", _document()["paths"])
def test_no_request_is_too_much(path: str, served: Served) -> None:
    # Loaded here: each process that reads the tests would take half a second for it.
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    schema, seen = schemathesis.openapi.from_dict(_document()), []
    checked = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    @hypothesis.settings(
        max_examples=_EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=schema[path]["GET"].as_strategy())
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(base_url=served.base, timeout=60)
        seen.append(answer.status_code)
        case.validate_response(answer, checks=checked)

    ask()
    assert seen
