"""The jobs of a computing child and its answers; both are plain JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from fleetrank.analysis.errors import (
    AnalysisError,
    DamagedPartError,
    NoDataError,
    NotComparableError,
    QueryError,
)
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.errors import (
    NewerSchemaError,
    OrchestratorError,
    StoreError,
    UsageError,
)

JSON_TYPE = "application/json"
FORGET = b"forget\n"
"""In place of a job: the files of the results have changed."""
READY = b"ready\n"
"""The first line of a child: its libraries are loaded, and time limits start to count."""


class JobKind(StrEnum):
    """The kinds of jobs."""

    PAGE = "page"
    TABLE = "table"
    VIEW = "view"
    QUERY = "query"
    QUERY_FILE = "query_file"
    DEVICE = "device"
    MODEL = "model"
    SWEEP = "sweep"


class RowForm(StrEnum):
    """The file formats for the rows of a query."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.

    Attributes:
        kind: decides which other fields are used.
        name: name of the table, view, device, model or sweep; the SQL of a query.
        selectors: JSON text of `workspace.selectors.Selectors`, so that a job can be a key.
        form: for a table one of `analysis.tables.formats.FORMATS`; for a query's file a `RowForm`.
        timeout_s, max_rows: limits of a query.
        wait_s: how long the child waits for measurements on this host, in all.
        out: the file that a query's rows are written to.
    """

    kind: JobKind
    name: str = ""
    selectors: str = "{}"
    form: str = "json"
    timeout_s: float = 0.0
    max_rows: int = 0
    wait_s: float = 0.0
    out: str = ""

    @property
    def is_query(self) -> bool:
        """Whether the job runs SQL from outside, which has limits."""
        return self.kind in (JobKind.QUERY, JobKind.QUERY_FILE)

    def line(self) -> bytes:
        """The job as one line of JSON."""
        return to_json(self).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> "Job":
        """Returns the job of a line that `line` wrote."""
        return from_json(cls, line.decode())


class RefusedError(OrchestratorError):
    """A job was not answered; `kind` is the class name of the error in the child."""

    def __init__(self, kind: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer to a job."""

    media_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    media_type: str
    size_bytes: int
    refusal: tuple[str, str, str] | None
    is_last: bool


def _head(received: bytearray, end: int) -> _Head:
    return from_json(_Head, received[:end].decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply of a child: one line of JSON, and the bytes of an answer.

    Attributes:
        refusal: kind, message and remedy of an error; `None` for an answer.
        is_last: whether the child ends after this reply.
    """

    answer: Result = Result(media_type="", body=b"")
    refusal: tuple[str, str, str] | None = None
    is_last: bool = False

    @classmethod
    def refusing(cls, error: FleetError) -> "Reply":
        """The reply that an error has, with its text."""
        return cls(refusal=(type(error).__name__, error.message, error.remedy))

    def encode(self) -> bytes:
        """Returns the bytes of the reply."""
        head = _Head(
            media_type=self.answer.media_type,
            size_bytes=len(self.answer.body),
            refusal=self.refusal,
            is_last=self.is_last,
        )
        return to_json(head).encode() + b"\n" + self.answer.body

    @staticmethod
    def is_complete(received: bytearray) -> bool:
        """Whether all of a reply has arrived."""
        end = received.find(b"\n")
        return end >= 0 and len(received) - end - 1 >= _head(received, end).size_bytes

    @classmethod
    def parse(cls, received: bytearray) -> "Reply":
        """Returns the reply of bytes that are complete."""
        end = received.find(b"\n")
        head = _head(received, end)
        return cls(
            answer=Result(media_type=head.media_type, body=bytes(received[end + 1 :])),
            refusal=head.refusal,
            is_last=head.is_last,
        )

    def result(self) -> Result:
        """The answer.

        Raises:
            RefusedError: the reply is an error.
        """
        if self.refusal is not None:
            raise RefusedError(*self.refusal)
        return self.answer


_MET: Mapping[str, type[FleetError]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            AnalysisError,
            DamagedPartError,
            NewerSchemaError,
            NoDataError,
            NotComparableError,
            QueryError,
            StoreError,
            UsageError,
        )
    }
)


def error_of_child(refused: RefusedError) -> FleetError:
    """Returns the error of the child as its own class, so that the exit code is the same."""
    return _MET.get(refused.kind, OrchestratorError)(refused.message, refused.remedy)
