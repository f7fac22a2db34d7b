"""The jobs of a computing child and its answers; both are plain JSON."""

from dataclasses import dataclass, replace
from enum import StrEnum

from fleetrank.analysis import errors as analysis_errors
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator import errors as orchestrator_errors
from fleetrank.orchestrator.errors import OrchestratorError

JSON_TYPE = "application/json"


class JobKind(StrEnum):
    """The kinds of jobs."""

    START = "start"
    """Answered when the libraries are loaded; time limits start to count."""
    PAGE = "page"
    TABLE = "table"
    VIEW = "view"
    QUERY = "query"
    QUERY_FILE = "query_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.

    Attributes:
        kind: decides which other fields are used.
        name: name of the table or view; the SQL of a query.
        selectors: JSON text of `workspace.selectors.Selectors`, so that a job can be a key.
        form: a `Form` of the table, or of the file of a query.
        timeout_s, max_rows: limits of a query.
        wait_s: how long the child waits for measurements on this host, in all.
        out: the file that a query's rows are written to.
        fingerprint: of the results' files; if it has changed, the child scans them again.
    """

    kind: JobKind
    name: str = ""
    selectors: str = "{}"
    form: str = "json"
    timeout_s: float = 0.0
    max_rows: int = 0
    wait_s: float = 0.0
    out: str = ""
    fingerprint: str = ""

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
class Reply:
    """The head of a child's reply: one line of JSON; the bytes of an answer follow it.

    Attributes:
        size_bytes: how many bytes follow.
        refusal: kind, message and remedy of an error; `None` for an answer.
        is_last: whether the child ends after this reply.
    """

    media_type: str = ""
    size_bytes: int = 0
    refusal: tuple[str, str, str] | None = None
    is_last: bool = False

    @classmethod
    def refusing(cls, error: FleetError) -> "Reply":
        """The reply that an error has, with its text."""
        return cls(refusal=(type(error).__name__, error.message, error.remedy))

    def encode(self, body: bytes = b"") -> bytes:
        """Returns the bytes of the reply."""
        return to_json(replace(self, size_bytes=len(body))).encode() + b"\n" + body


def error_of_child(refused: RefusedError) -> FleetError:
    """Returns the error of the child as its own class, so that the exit code is the same."""
    for module in (analysis_errors, orchestrator_errors):
        kind = vars(module).get(refused.kind)
        if isinstance(kind, type) and issubclass(kind, FleetError):
            return kind(refused.message, refused.remedy)
    return OrchestratorError(refused.message, refused.remedy)
