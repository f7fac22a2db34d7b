"""The answers of the API, as its OpenAPI document describes them."""

from typing import Any

from pydantic import BaseModel, Field, JsonValue

from fleetrank.analysis.sql.sql_views import described_views
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.orchestrator.workspace.selectors import Selectors, TableFormat

DESCRIPTION = """\
Measurements of one workspace and the analysis of them. Read-only: every path is a GET.

The unit is the last part of a name: `_ns`, `_ms`, `_bytes`, `_mj`, `_percent`; `_utc` is a time. A
missing or undefined value is null, never 0. Selectors are those of `fleetrank report show`.

The header `fleetrank-made` gives the time when an answer was computed. `fleetrank-current` is false
if the results have changed since: while a measurement runs on this host, the last answer is
returned. Status 503: try again after `Retry-After` seconds."""

_TYPES = {
    "VARCHAR": ["string", "null"],
    "BIGINT": ["integer", "null"],
    "DOUBLE": ["number", "null"],
    "BOOLEAN": ["boolean", "null"],
    "TIMESTAMPTZ": ["string", "null"],
    "BIGINT[]": ["array", "null"],
    "VARCHAR[]": ["array", "null"],
}
_RESPONSES = dict[int | str, dict[str, Any]]
"""The type that FastAPI uses for it."""


class Problem(BaseModel):
    """The answer of every error."""

    message: str = Field(description="What happened.")
    remedy: str = Field(description="What to do about it.")


class TableAnswer(BaseModel):
    """A table."""

    title: str
    notes: list[str] = Field(description="Notes for the reader: n, what was dropped and why.")
    explanation: list[str] = Field(
        description="What the columns mean, and how the figures are computed."
    )
    rows: list[dict[str, JsonValue]] = Field(description="Missing and undefined figures are null.")


class RowsAnswer(BaseModel):
    """Rows of a query."""

    rows: list[dict[str, JsonValue]]
    is_cut: bool = Field(description="Whether there are more rows than max_rows.")
    left_out: str | None = Field(
        description="How many stored rows are not in the view measurements that the SQL names, and "
        "why; null if there are none."
    )


class TableName(BaseModel):
    """A table that can be requested."""

    name: str
    settings: list[str] = Field(description="Its settings, for `set`.")
    words: dict[str, list[str]] = Field(
        description="The only values of a setting, the default first; others take free text."
    )


class ColumnAnswer(BaseModel):
    """A column that SQL sees."""

    view: str
    column: str
    dtype: str
    unit: str | None
    doc: str


class DeviceProgressAnswer(BaseModel):
    """A device in a sweep."""

    device: str
    running: str | None = Field(description="What it measures now.")
    n_repeats: int | None = Field(description="Null if the sweep's record does not contain it.")
    n_ok: int
    n_failed: int
    last: dict[str, JsonValue] | None = Field(description="Its last attempt.")


class SweepProgressAnswer(BaseModel):
    """A sweep."""

    sweep_id: str
    state: str = Field(description="running, finished, interrupted, failed, stopped or imported.")
    started_utc: str | None
    finished_utc: str | None
    n_repeats: int
    n_ok: int
    n_failed: int
    n_left: int
    seconds_left: float | None
    n_overcome: int = Field(description="Failed attempts at repeats that another attempt measured.")
    failures: list[dict[str, JsonValue]] = Field(
        description="Failures of repeats without a valid measurement, the newest last."
    )
    tags: list[str] = Field(description="Tags that a person gave it.")
    note: str | None = Field(description="Note that a person wrote about it.")
    devices: list[DeviceProgressAnswer]
    latest: list[dict[str, JsonValue]] = Field(description="Its last attempts, newest first.")


class ProgressAnswer(BaseModel):
    """Progress of the sweeps."""

    fingerprint: str = Field(
        description="Fingerprint of the published results; changes when they change."
    )
    sweeps: list[SweepProgressAnswer] = Field(description="Running sweeps and the newest ones.")


class TableQuery(Selectors):
    """Selectors, and the form of the answer."""

    format: TableFormat = Field(default=TableFormat.JSON, description="Form of the table.")


class QueryQuery(BaseModel, extra="forbid"):
    """One SELECT and its limits."""

    sql: str = Field(
        min_length=1,
        max_length=20_000,
        description="One SELECT; /api/columns lists the columns.",
    )
    max_rows: int = Field(default=1000, ge=1, le=10_000, description="Maximum number of rows.")
    timeout_s: float = Field(
        default=10.0, ge=0.1, le=30.0, description="Time limit of the query in seconds."
    )


def problems(*statuses: int) -> _RESPONSES:
    """Returns the errors of a path, in addition to those of all paths."""
    return {status: {"model": Problem} for status in (400, 401, 403, 404, 421, 422, 503, *statuses)}


def table_responses() -> _RESPONSES:
    """Returns the responses of a table, in all its formats."""
    text = {"schema": {"type": "string"}}
    forms = ("text/csv", "text/plain", "text/markdown", "application/x-latex")
    return {200: {"model": TableAnswer, "content": dict.fromkeys(forms, text)}, **problems(409)}


def view_responses(view: str) -> _RESPONSES:
    """Returns the responses of a relation, column by column."""
    columns = {
        column.column: {
            "type": _TYPES[column.dtype],
            "description": f"{column.doc}{f' [{column.unit}]' if column.unit else ''}",
        }
        for column in described_views()
        if column.view == view
    }
    rows = {"type": "array", "items": {"type": "object", "properties": columns}}
    schema = {
        "type": "object",
        "required": ["rows", "is_cut"],
        "properties": {"rows": rows, "is_cut": {"type": "boolean"}},
    }
    content = {"application/json": {"schema": schema}}
    return {200: {"description": f"The {view}.", "content": content}, **problems()}


def table_names() -> list[TableName]:
    """Returns all tables with their settings."""
    return [
        TableName(
            name=name,
            settings=[one.name for one in spec.settings],
            words={one.name: list(one.words) for one in spec.settings if one.words},
        )
        for name, spec in TABLES.items()
    ]
