"""Programs for phones on this host, under their sha256: what was registered is what is pushed."""

import shutil
from pathlib import Path
from tempfile import NamedTemporaryFile

from device_agents.android.tools import Tool, file_sha256
from device_agents.errors import PermanentError
from device_agents.user_folders import cache_folder
from foundation.small_file import open_regular


class ToolStore:
    """One folder, shared by all workspaces of a user."""

    def __init__(self, folder: Path | None = None) -> None:
        """`None` is the user's own folder."""
        self.folder = folder or cache_folder() / "tools"

    def add(self, tool: Tool) -> None:
        """Keeps a copy, so that a file the user moves or builds anew changes no registration."""
        target = self._path(tool.name, tool.sha256)
        if target.is_file() and file_sha256(target) == tool.sha256:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            NamedTemporaryFile(dir=target.parent, prefix=".copy-", delete=False) as aside,
            open_regular(tool.path) as source,
        ):
            shutil.copyfileobj(source, aside)
        if file_sha256(Path(aside.name)) != tool.sha256:
            Path(aside.name).unlink()
            raise PermanentError(f"{tool.path} changed while it was copied", "register again")
        Path(aside.name).replace(target)

    def find(self, name: str, sha256: str) -> Path:
        """The file of a registered program, verified.

        Raises:
            PermanentError: it is gone or has changed.
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
