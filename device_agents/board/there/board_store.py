"""The folder of fleetrank on a board: artifacts by their sha256, and results that were not fetched.

The board's clock may be wrong, so nothing here depends on an age.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import BinaryIO

from fleetrank.device_agents.errors import DamagedFileError
from fleetrank.foundation.files import NoRoomError, make_folder, replace_file, written_aside
from fleetrank.foundation.small_file import file_sha256

_CHUNK_BYTES = 1 << 20
_PIECE_BYTES = 8 << 20
"""As text it is 11 MB: the host accepts 16 MiB of output from one command."""
_SPARE_BYTES = 64 << 20
"""Left free for the system and for what runtimes write."""
_MOST_KEPT = 20
"""Results that nothing fetched; a result is about 100 kB."""
_AGAIN = "it is sent again at the next try"
RUN_AGAIN = "run the command again: what was scored is kept"
_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]{1,8})?")


class BoardStore:
    """The files below one folder.

    Args:
        folder: of fleetrank on this board.
        version: of the code; results that another version kept have another form.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        self._version = version
        self._files = folder / "files"
        self._kept = folder / "kept"
        for inner in (self._files, self._kept):
            make_folder(inner)

    def missing(self, names: Iterable[str]) -> list[str]:
        """The artifacts that must be sent, of these `SHA256.SUFFIX`; the others count as used."""
        found = []
        for name in names:
            path = self.path(name)
            if path.is_file():
                os.utime(path)
            else:
                found.append(name)
        return found

    def path(self, name: str) -> Path:
        """Where an artifact is or will be."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of an artifact")
        return (self._files / name).absolute()

    def receive(self, stream: BinaryIO, name: str, size: int, in_use: Collection[str]) -> None:
        """Stores the next bytes of a stream as an artifact; removes older ones if room is short.

        Raises:
            NoRoomError: there is not enough room, or it ran out.
            DamagedFileError: the stream ended early, or the bytes are not the artifact.
        """
        self._make_room(size, {name, *in_use})
        with written_aside(self.path(name), is_synced=True) as aside:
            with aside.open("xb") as file:
                found = _copy(stream, file, size)
            if found != name[:64]:
                raise DamagedFileError(f"{name} arrived damaged: its sha256 is {found}", _AGAIN)

    @property
    def outputs(self) -> Path:
        """Where a worker writes outputs; a process that holds the board adopts or removes them."""
        return (self._files / "outputs.npz").absolute()

    def adopt_outputs(self) -> "tuple[str, int]":
        """Names the outputs by their sha256, as an artifact; returns this name and the size."""
        name, size = f"{file_sha256(self.outputs)}.npz", self.outputs.stat().st_size
        self.outputs.replace(self.path(name))
        return name, size

    def take(self, name: str, offset: int) -> bytes:
        """The next bytes of an artifact, from an offset; removes it after its last byte.

        Raises:
            DamagedFileError: it was removed to make room.
        """
        path = self.path(name)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                piece = file.read(_PIECE_BYTES)
                is_last = not file.read(1)
        except FileNotFoundError as error:
            raise DamagedFileError(
                f"the board does not have {name} any more: it made room for another file", RUN_AGAIN
            ) from error
        if is_last:
            path.unlink(missing_ok=True)
        return piece

    def remove(self, name: str) -> None:
        """Removes an artifact that is not needed again."""
        self.path(name).unlink(missing_ok=True)

    def keep(self, key: str, reply: str) -> None:
        """Stores a result until it is acknowledged, also over a loss of power."""
        replace_file(self._place(key), reply.encode(), is_synced=True)
        kept = sorted(self._kept.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-_MOST_KEPT]:
            path.unlink(missing_ok=True)

    def kept(self, key: str) -> "str | None":
        """The result that was stored under this key; `None` if there is none."""
        try:
            return self._place(key).read_text(encoding="utf-8")
        except OSError:
            return None

    def forget(self, key: str) -> None:
        """Removes a result."""
        self._place(key).unlink(missing_ok=True)

    def _place(self, key: str) -> Path:
        text = f"{self._version}/{key}"
        return self._kept / f"{hashlib.sha256(text.encode()).hexdigest()}.json"

    def _make_room(self, size: int, in_use: Collection[str]) -> None:
        """Removes the artifacts that were not used for the longest time until this one fits."""
        found = sorted(self._files.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in (path for path in found if path.name not in in_use and path.name[0] != "."):
            if self._free_bytes() >= size + _SPARE_BYTES:
                return
            path.unlink(missing_ok=True)
        if self._free_bytes() < size:
            raise NoRoomError(
                f"{self._files.absolute()} has {self._free_bytes() >> 20} MiB left, and the file "
                f"needs {size >> 20} MiB",
                "free some space on the board",
            )

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._files).free


def _copy(stream: BinaryIO, file: BinaryIO, size: int) -> str:
    """Copies exactly `size` bytes; returns their sha256."""
    digest = hashlib.sha256()
    left = size
    while left:
        chunk = stream.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise DamagedFileError(f"the line ended {left} bytes before the file's end", _AGAIN)
        file.write(chunk)
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()
