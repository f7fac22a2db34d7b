"""The selectors: one definition, on the command line and over HTTP."""

import inspect
from dataclasses import fields

import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.orchestrator.cli import report_command
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.server.api import TableQuery, api
from fleetrank.orchestrator.server.pages import PageQuery
from fleetrank.orchestrator.workspace.selectors import PAGE_SELECTORS, Selectors, selector_fields

pytestmark = pytest.mark.slow

_FORMS = {"part", "format_", "as_json", "explain", "now"}
_OF_VIEW = {"columns", "sort", "descending", "limit", "show_all"}
_OF_COMMAND_LINE = {"models_file", "named_models"}
"""What only a command line has: a file, which the API and the server must not read, and words."""


def test_a_table_takes_its_own_settings_and_the_selectors_that_it_can_use() -> None:
    every = {field.name for field in selector_fields()} - {"set"}
    for spec in TABLES.values():
        taken = inspect.signature(report_command.show_command(spec)).parameters
        options = set(taken) - _FORMS - _OF_VIEW
        has_pairs = any(part.is_of_pairs for part in spec.parts.values())
        usable = every if has_pairs else every - {"target", "target_tier", "allow_unlike_batch"}
        assert options == usable | _OF_COMMAND_LINE | set(spec.settings)


def test_only_the_command_line_reads_a_file_of_models(tmp_path) -> None:
    (tmp_path / "models.txt").write_text("resnet18\n")
    named = f"@{tmp_path}/models.txt"
    assert Selectors(model=named).selection().models == (named,)
    with pytest.raises(ValidationError):
        Selectors.model_validate({"models_file": f"{tmp_path}/models.txt"})


def test_the_page_takes_fewer_selectors_than_files(capsys) -> None:
    taken = set(inspect.signature(report_command.build).parameters)
    assert taken > {one.name for one in selector_fields()} - {"set"} > set(PAGE_SELECTORS)
    assert run(["report", "build", "--source", "pixel-7"]) == 2
    assert "--tables DIR" in capsys.readouterr().err


def test_a_field_says_what_an_option_needs() -> None:
    fields = {field.name: field for field in selector_fields()}
    assert fields["source_tier"].words == ("gpu", "cpu", "edge")
    assert (fields["family"].kind, fields["family"].default) == ("text", None)
    assert (fields["model"].kind, fields["model"].words) == ("array", ())
    assert (fields["seed"].minimum, fields["seed"].kind) == (0, "integer")
    assert fields["set"].kind == "array"


def test_the_page_takes_its_own_selectors_alone() -> None:
    asked = PageQuery.model_validate({"sweep": "s", "seed": "7"})
    assert Selectors.model_validate_json(asked.job().selectors) == Selectors(sweep="s", seed=7)
    assert asked.suffix() == "?sweep=s&seed=7"
    with pytest.raises(ValidationError, match="no selector 'source'"):
        PageQuery.model_validate({"source": "pixel-7"})


def test_the_api_documents_every_selector() -> None:
    app = FastAPI()
    app.include_router(api)
    parameters = app.openapi()["paths"]["/api/tables/{name}"]["get"]["parameters"]
    named = {field.alias or name for name, field in TableQuery.model_fields.items()} | {"name"}
    assert {parameter["name"] for parameter in parameters} == named
    assert all(parameter["description"] for parameter in parameters)


def test_a_selector_is_a_field_of_the_selection_or_a_column_of_text() -> None:
    own = {field.name for field in fields(Selection)} | {"include_simulated"}
    rest = set(Selectors.model_fields) - own
    assert all(SCHEMA.field(name).type == "string" for name in rest), rest


def test_nothing_given_selects_all() -> None:
    assert Selectors().selection() == Selection()


def test_empty_parameters_are_not_given() -> None:
    given = {"sweep": "", "runtime": "", "set": ["", ""], "seed": ""}
    assert Selectors.model_validate(given).selection() == Selection()


@pytest.mark.parametrize("given", ["a", ["a"], ("a", ""), ["a", "a"]])
def test_one_name_is_a_list_of_one(given: object) -> None:
    selection = Selectors.model_validate({"sweep": given, "model": given}).selection()
    assert selection == Selection(sweep="a", model="a") == Selection(sweep=["a"], model=("a",))


def test_several_sweeps_and_models_are_kept_in_their_order() -> None:
    asked = PageQuery.model_validate({"sweep": ["b", "a"]})
    assert asked.suffix() == "?sweep=b&sweep=a"
    assert Selectors.model_validate_json(asked.job().selectors).selection().sweeps == ("b", "a")
    assert Selectors(model=("r*", "vit")).selection().models == ("r*", "vit")


def test_a_memory_limit_is_a_number_or_absent() -> None:
    (field,) = (one for one in selector_fields() if one.name == "max_memory_mib")
    assert (field.kind, field.default, field.minimum) == ("integer", None, 1)
    assert Selectors.model_validate({"max_memory_mib": "512"}).selection().max_memory_mib == 512
    assert Selectors.model_validate({"max_memory_mib": ""}).selection() == Selection()
    for wrong in ("0", "-1", "1.5", "many"):
        with pytest.raises(ValidationError):
            Selectors.model_validate({"max_memory_mib": wrong})


def test_settings_are_pairs() -> None:
    assert Selectors(set=("k=5", "goal=a=b")).selection().settings == (("k", "5"), ("goal", "a=b"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runtime": "onx"}, "runtime 'onx'"),
        ({"source_tier": "phone"}, "source tier 'phone'"),
        ({"model": "m" * 501}, "501 characters"),
        ({"sweep": ["s", "m" * 501]}, "501 characters"),
        ({"model": [str(number) for number in range(10_001)]}, "10,001 models"),
        ({"set": ("k",)}, "'k' has no value"),
        ({"set": ("=5",)}, "'=5' has no value"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Selectors.model_validate(given).selection()
