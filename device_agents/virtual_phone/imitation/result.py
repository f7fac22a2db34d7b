"""The output of a stand-in, before a fault changes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The complete output of one run of a program.

    Attributes:
        text: for standard output.
        other_version: the same run in the words of another version; it has no result file.
        log: lines for the phone's log, without stamp and tag.
        other_log: the same lines in the words of another version.
        result: content of the result file.
        appends: whether `result` is appended to the result file or replaces it.
    """

    text: str = ""
    other_version: str = ""
    log: tuple[str, ...] = ()
    other_log: tuple[str, ...] = ()
    result_path: str | None = None
    result: bytes | None = None
    appends: bool = False
    exit_code: int = 0
