"""Checks the content of a sweep's record; finds damage in records without a checksum."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetrank.orchestrator.store.results import Record
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

_Count = Annotated[int, Field(ge=0)]


class _Plan(BaseModel):
    """The plan in a record, which a resume compares with its own plan."""

    model_config = ConfigDict(extra="allow", strict=True)

    n_cells: _Count
    repeats: _Count
    sha256: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


class _SweepRecord(BaseModel):
    """The entries that readers depend on; an imported sweep has no spec and no plan."""

    model_config = ConfigDict(extra="allow", strict=True)

    sweep_id: str
    state: Literal["running", "finished", "stopped", "interrupted", "failed"] | None = None
    started_utc: Annotated[datetime, Field(strict=False)] | None = None
    finished_utc: Annotated[datetime, Field(strict=False)] | None = None
    n_ok: _Count | None = None
    n_failed: _Count | None = None
    n_left: _Count | None = None
    spec: Annotated[SweepSpec, Field(strict=False)] | None = None
    only: str | None = None
    plan: _Plan | None = None
    fleet: dict[str, object] | None = None


def record_problems(sweep_id: str, record: Record) -> list[str]:
    """Returns the problems of a record, one text per entry; empty means no problem."""
    if record.get("sweep_id") != sweep_id:
        return [f"its entry 'sweep_id' is {record.get('sweep_id')!r}"]
    try:
        _SweepRecord.model_validate(record)
    except ValidationError as error:
        return [
            f"its entry '{'.'.join(str(part) for part in one['loc'])}': {one['msg']}"
            for one in error.errors(include_url=False, include_context=False)
        ]
    return []
