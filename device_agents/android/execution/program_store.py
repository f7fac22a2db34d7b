"""The programs that are kept on this host, named by their sha256."""

import shutil
from functools import partial
from pathlib import Path
from typing import BinaryIO

from fleetrank.device_agents.android.execution.program_files import (
    ProgramFile,
    ProgramPart,
    file_sha256,
    read_folder,
)
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.files import cache_folder, make_folder, replace_file_with
from fleetrank.foundation.small_file import open_regular


class ProgramStore:
    """One folder, shared by all workspaces of a user."""

    def __init__(self, folder: Path | None = None) -> None:
        """`None` uses the user's own folder."""
        self.folder = folder or cache_folder() / "tools"

    def add(self, program: ProgramFile) -> None:
        """Keeps a copy, so that moving or rebuilding the original file changes no registration.

        Raises:
            PermanentError: the file has changed since it was identified.
            StorageError: the copy cannot be written.
        """
        if self._kept(program.name, program.sha256) is not None:
            return
        folder = self.folder / program.sha256
        if program.folder:
            # What lies there is damaged, and a file too many would be a library too many.
            shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        for part in program.parts:
            replace_file_with(folder / part.name, partial(_copy, part))

    def find(self, name: str, sha256: str) -> ProgramFile:
        """Returns the verified file of a registered program.

        Raises:
            PermanentError: the file is missing or has changed.
        """
        program = self._kept(name, sha256)
        if program is None:
            raise PermanentError(
                f"{name} with the sha256 {sha256[:12]}... is not in {self.folder}",
                f"register again: `fleetrank devices add` with `adb=SERIAL` and `tool={name}=PATH`",
            )
        return program

    def _kept(self, name: str, sha256: str) -> ProgramFile | None:
        """The program if it is here and unchanged."""
        path = self.folder / sha256 / name
        if not path.is_file():
            return None
        if file_sha256(path) == sha256:
            return ProgramFile(name=name, path=path, sha256=sha256)
        try:
            program = read_folder(name, path.parent)
        except PermanentError:
            return None
        return program if program.sha256 == sha256 else None


def _copy(part: ProgramPart, file: BinaryIO) -> None:
    """Copies one file; the copy is verified, so the original may change afterwards."""
    with open_regular(part.path) as source:
        shutil.copyfileobj(source, file)
    file.flush()
    if file_sha256(Path(file.name)) != part.sha256:
        raise PermanentError(f"{part.path} changed while it was copied", "register again")
