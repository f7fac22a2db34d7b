"""Programs for phones on this host, named by sha256. Exactly the registered file is pushed."""

import shutil
from pathlib import Path
from typing import BinaryIO

from fleetrank.device_agents.android.programs.tools import Tool, file_sha256
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.files import cache_folder, make_folder, replace_file_with
from fleetrank.foundation.small_file import open_regular


class ToolStore:
    """One folder, shared by all workspaces of a user."""

    def __init__(self, folder: Path | None = None) -> None:
        """`None` uses the user's own folder."""
        self.folder = folder or cache_folder() / "tools"

    def add(self, tool: Tool) -> None:
        """Keeps a copy, so that moving or rebuilding the original file changes no registration.

        Raises:
            PermanentError: the file has changed since it was identified.
            StorageError: the copy cannot be written.
        """
        target = self._path(tool.name, tool.sha256)
        if target.is_file() and file_sha256(target) == tool.sha256:
            return
        make_folder(target.parent)

        def copy(file: BinaryIO) -> None:
            with open_regular(tool.path) as source:
                shutil.copyfileobj(source, file)
            file.flush()
            if file_sha256(Path(file.name)) != tool.sha256:
                raise PermanentError(f"{tool.path} changed while it was copied", "register again")

        replace_file_with(target, copy)

    def find(self, name: str, sha256: str) -> Path:
        """Returns the verified file of a registered program.

        Raises:
            PermanentError: the file is missing or has changed.
        """
        path = self._path(name, sha256)
        if not path.is_file() or file_sha256(path) != sha256:
            raise PermanentError(
                f"{name} with the sha256 {sha256[:12]}... is not in {self.folder}",
                f"register again: `fleetrank devices add --adb SERIAL --tool {name}=PATH`",
            )
        return path

    def _path(self, name: str, sha256: str) -> Path:
        return self.folder / sha256 / name
