"""Paths of the phone and where they lie on the host.

A phone's `/data`, `/sys`, `/proc`, `/sdcard` and `/storage` are folders inside the phone's own.
In the text of a command they are replaced before the host's shell reads it, and taken out of what
it prints. That needs no rights, no namespace and no image; its limits: paths that a program makes
up itself, or reads from a file, are those of the host, and so is everything outside these folders.
The phone is no sandbox: whoever may use its port may run commands as the user who started it.
"""

import posixpath
import re
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError

_PHONE_PATH = re.compile(r"(?<![\w./})-])/(?=(?:data|sys|proc|sdcard|storage)(?![\w.-]))", re.ASCII)
"""The slash before one of the folders, unless what stands before it makes a longer path."""
_SAFE_ROOT = re.compile(r"/[\w./+-]+", re.ASCII)
"""The root stands in shell text, inside and outside quotes; none of these means anything there."""


class PhonePaths:
    """Translates between the phone's paths and the host's."""

    def __init__(self, root: Path) -> None:
        """Raises `PermanentError` for a folder whose name a shell could read as code."""
        self.root = root.resolve()
        if _SAFE_ROOT.fullmatch(str(self.root)) is None:
            raise PermanentError(
                f"the folder '{self.root}' cannot hold virtual phones",
                "choose one whose path has only letters, digits and . _ + -",
            )

    def to_host(self, command: str) -> str:
        """Replaces the phone's paths in the text of a command."""
        return _PHONE_PATH.sub(lambda _: f"{self.root}/", command)

    def file(self, path: str) -> Path | None:
        """Where a path of the phone lies, every link on the way followed; `None` outside of it.

        Unlike a command, a transfer of files never leaves the phone's folder. A path that the host
        cannot look up, such as one with a name that is too long, lies nowhere either.
        """
        try:
            return self._file(path)
        except OSError:
            return None

    def _file(self, path: str) -> Path | None:
        joined = posixpath.normpath(posixpath.join("/", path)).lstrip("/")
        if "\0" in path:
            return None
        inside = self.root / joined
        parent = inside.parent.resolve()
        if inside.is_symlink() and not inside.resolve().is_relative_to(self.root):
            return None
        return parent / inside.name if parent.is_relative_to(self.root) else None


class PathHider:
    """Takes the phone's folder out of a stream of output, whatever pieces it comes in."""

    def __init__(self, root: Path) -> None:
        self._sign = str(root).encode()
        self._held = b""

    def hide(self, chunk: bytes) -> bytes:
        """Returns what can be passed on; an end that may be the start of the path is held back."""
        text = (self._held + chunk).replace(self._sign, b"")
        keep = next(
            (
                size
                for size in range(min(len(self._sign) - 1, len(text)), 0, -1)
                if text.endswith(self._sign[:size])
            ),
            0,
        )
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> bytes:
        """What was held back, once there is no more."""
        held, self._held = self._held, b""
        return held
