"""Requests made by a generator from the API's own document; none may be too much for it."""

import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import Served

from fleetrank.orchestrator.server.app import api

_CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
_EXAMPLES = 12
"""Per path: what is computed takes the server some tenths of a second each."""


def _operations() -> dict[str, schemathesis.APIOperation]:
    app = FastAPI()
    app.include_router(api)
    schema = schemathesis.openapi.from_dict(app.openapi())
    found = (result.ok() for result in schema.get_all_operations())
    return {operation.path: operation for operation in found}


OPERATIONS = _operations()


@pytest.mark.parametrize("path", OPERATIONS)
def test_no_request_is_too_much(path: str, served: Served) -> None:
    seen = []

    @hypothesis.settings(
        max_examples=_EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=OPERATIONS[path].as_strategy())
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(base_url=served.base, timeout=60)
        seen.append(answer.status_code)
        case.validate_response(answer, checks=list(_CHECKS))

    ask()
    assert seen
