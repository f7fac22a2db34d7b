"""The messages between the exporting child and its parent, one line of JSON each."""

from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.vocabulary import FlopsMethod
from fleetrank.models.cards.card import Cost, ExportRequest, StagedExport
from fleetrank.models.errors import ExportError, ModelError, UntrustedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrder:
    """What the child does: the arguments of `process.export_in_child`."""

    request: ExportRequest
    out_dir: Path
    memory_limit_bytes: int | None
    is_trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error of the child."""

    is_about_trust: bool
    message: str
    remedy: str

    @classmethod
    def of(cls, error: ModelError) -> "Refusal":
        """The refusal that says what this error says."""
        return cls(
            is_about_trust=isinstance(error, UntrustedError),
            message=error.message,
            remedy=error.remedy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAnswer:
    """What the child did; exactly one of the two is not `None`."""

    staged: StagedExport | None = None
    refusal: Refusal | None = None

    def result(self) -> StagedExport:
        """The exported file.

        Raises:
            ExportError: the child's error, with its text; or the answer is empty.
            UntrustedError: the same, for a child that lacked trust.
        """
        if self.staged is not None:
            return self.staged
        if self.refusal is None:
            raise ExportError("the exporting child gave an empty answer", "report it as a bug")
        kind = UntrustedError if self.refusal.is_about_trust else ExportError
        raise kind(self.refusal.message, self.refusal.remedy)


def cost_of(*, macs: int | None, parameters: int | None, method: str | None) -> Cost:
    """A cost from the fields of its JSON form."""
    return Cost(
        macs=macs,
        parameters=parameters,
        method=None if method is None else FlopsMethod(method),
    )
