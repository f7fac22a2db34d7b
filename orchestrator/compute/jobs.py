"""What a computing child can be asked, and what it answers; plain JSON both ways."""

import json
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.orchestrator.compute.errors import RefusedError

JSON_TYPE = "application/json"
FORGET = b"forget\n"
"""In place of a job: the files of the results have changed."""
READY = b"ready\n"
"""The first line of a child: its libraries are loaded, and time limits begin to count."""


class JobKind(StrEnum):
    """One way of answering from the results."""

    PAGE = "page"
    TABLE = "table"
    VIEW = "view"
    QUERY = "query"
    QUERY_FILE = "query_file"
    DEVICE = "device"
    MODEL = "model"
    SWEEP = "sweep"


class RowForm(StrEnum):
    """How the rows of a query are written into a file."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One question.

    Attributes:
        kind: says which of the others matter.
        name: of the table, view, device, model or sweep; the SQL of a query.
        selectors: JSON text of `workspace.selectors.Selectors`, so that a job can be a key.
        form: one of `analysis.tables.formats.FORMATS`, for a table; a `RowForm` for a query's file.
        timeout_s, max_rows: limits of a query.
        out: the file that a query's rows are written to.
    """

    kind: JobKind
    name: str = ""
    selectors: str = "{}"
    form: str = "json"
    timeout_s: float = 0.0
    max_rows: int = 0
    out: str = ""

    @property
    def is_query(self) -> bool:
        """Whether SQL from outside is run: it has limits."""
        return self.kind in (JobKind.QUERY, JobKind.QUERY_FILE)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a child sends back: one line of JSON, and the bytes of an answer.

    Attributes:
        refusal: kind, message and remedy of an error; `None` for an answer.
        is_last: the child ends itself after it.
    """

    answer: Result = Result(media_type="", body=b"")
    refusal: tuple[str, str, str] | None = None
    is_last: bool = False

    def encode(self) -> bytes:
        """The reply as it is sent."""
        head = {
            "media_type": self.answer.media_type,
            "size_bytes": len(self.answer.body),
            "refusal": self.refusal,
            "is_last": self.is_last,
        }
        return json.dumps(head).encode() + b"\n" + self.answer.body

    @classmethod
    def parse(cls, received: bytearray) -> "Reply | None":
        """The reply, once all of it is there."""
        end = received.find(b"\n")
        if end < 0:
            return None
        head = json.loads(received[:end])
        body = bytes(received[end + 1 :])
        if len(body) < head["size_bytes"]:
            return None
        return cls(
            answer=Result(media_type=head["media_type"], body=body),
            refusal=None if head["refusal"] is None else tuple(head["refusal"]),
            is_last=head["is_last"],
        )

    def result(self) -> Result:
        """The answer.

        Raises:
            RefusedError: there is none.
        """
        if self.refusal is not None:
            raise RefusedError(*self.refusal)
        return self.answer
