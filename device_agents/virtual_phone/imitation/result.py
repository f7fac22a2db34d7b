"""What a stand-in produces, before a fault may spoil it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The whole of one run of a program.

    Attributes:
        text: for standard output.
        other_version: the same run as an old or new version words it; no result file goes with it.
        log: lines for the phone's log, without stamp and tag.
        other_log: the same in another version's words.
        result: content of the result file.
        appends: whether the result file grows by `result` or is replaced.
    """

    text: str = ""
    other_version: str = ""
    log: tuple[str, ...] = ()
    other_log: tuple[str, ...] = ()
    result_path: str | None = None
    result: bytes | None = None
    appends: bool = False
    exit_code: int = 0
