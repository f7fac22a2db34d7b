"""What a computing child of the server can be asked, and what it answers; plain JSON both ways."""

import json
from dataclasses import dataclass
from enum import StrEnum

FORGET = b"forget\n"
"""In place of a job: the files of the results have changed."""


class JobKind(StrEnum):
    """One way of answering from the results."""

    PAGE = "page"
    TABLE = "table"
    VIEW = "view"
    QUERY = "query"
    DEVICE = "device"
    MODEL = "model"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One question.

    Attributes:
        kind: says which of the others matter.
        name: of the table, view, device, model or sweep; the SQL of a query.
        selectors: JSON text of `orchestrator.selectors.Selectors`, so that a job can be a key.
        form: one of `analysis.formats.FORMATS`, for a table.
        timeout_s, max_rows: limits of a query.
    """

    kind: JobKind
    name: str = ""
    selectors: str = "{}"
    form: str = "json"
    timeout_s: float = 0.0
    max_rows: int = 0

    def line(self) -> bytes:
        """The job as one line of JSON."""
        content = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(content).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> "Job":
        """What `line` wrote."""
        content = json.loads(line)
        return cls(**{**content, "kind": JobKind(content["kind"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An answer of a job."""

    media_type: str
    body: bytes
