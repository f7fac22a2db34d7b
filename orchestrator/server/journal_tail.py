"""What was appended to a journal since the last look."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from analysis.columns import ROW_KEY

_BLOCK_BYTES = 8 << 20


class JournalTail:
    """Reads each whole line of a growing file once; a half-written one is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_rows(self) -> Iterator[Mapping[str, object]]:
        """Rows since the last call, in order; what is no row is passed over.

        `Journal.scan` says which lines are no rows; here they are only counted by nobody.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset)
            rest = b""
            while block := file.read(_BLOCK_BYTES):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    self._offset += len(line) + 1
                    if (row := _parse(line)) is not None:
                        yield row


def _parse(line: bytes) -> Mapping[str, object] | None:
    try:
        row = orjson.loads(line)
    except ValueError:
        return None
    is_row = isinstance(row, dict) and all(row.get(name) is not None for name in ROW_KEY)
    return row if is_row else None
