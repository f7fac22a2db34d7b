"""The selectors: one definition, on the command line and over HTTP."""

import inspect

import pytest
from fastapi import FastAPI

from fleetrank.analysis.stored.selection import Selection
from fleetrank.orchestrator.cli.report import report_command
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.server import api
from fleetrank.orchestrator.workspace.selectors import Selectors

_FORMS = {"name", "format_", "as_json"}


def test_report_show_takes_every_selector_and_no_other() -> None:
    options = set(inspect.signature(report_command.show).parameters) - _FORMS
    assert options == set(Selectors.model_fields)


def test_the_api_documents_every_selector() -> None:
    app = FastAPI()
    app.include_router(api.router)
    parameters = app.openapi()["paths"]["/api/transfer"]["get"]["parameters"]
    named = {field.alias or name for name, field in Selectors.model_fields.items()}
    assert {parameter["name"] for parameter in parameters} == named
    assert all(parameter["description"] for parameter in parameters)


def test_nothing_given_selects_all() -> None:
    assert Selectors().selection() == Selection()


def test_empty_fields_of_a_form_are_not_given() -> None:
    assert Selectors(sweep="", runtime="", set=("",)).selection() == Selection()


def test_settings_are_pairs() -> None:
    assert Selectors(set=("k=5", "goal=a=b")).selection().settings == (("k", "5"), ("goal", "a=b"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runtime": "onx"}, "runtime 'onx'"),
        ({"source_tier": "phone"}, "source tier 'phone'"),
        ({"model": "m" * 501}, "501 characters"),
        ({"set": ("k",)}, "'k' has no value"),
        ({"set": ("=5",)}, "'=5' has no value"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Selectors.model_validate(given).selection()
