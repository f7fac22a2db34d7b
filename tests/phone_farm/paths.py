"""Translates between the paths of a phone and those of its folder on the host.

A phone's `/data`, `/sys`, `/proc`, `/sdcard` and `/storage` are folders inside the phone's
folder. They are replaced in the text of a command before the host's shell reads it, and removed
from its output. That needs no privileges, no namespace and no image. Its limits: paths that a
program builds itself, or reads from a file, are those of the host. Everything outside these
folders is the host's, too. The phone is not a sandbox: everyone who may use its port may run
commands as the user who started it.
"""

import posixpath
import re
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError

_PHONE_PATH = re.compile(
    r"(?<![\w./})-])/(?=(?:data|sys|proc(?!/\$)|sdcard|storage)(?![\w.-]))", re.ASCII
)
"""The slash before one of the folders, unless the text before it makes a longer path.

`/proc/$pid` stays the host's: the programs of a phone are processes of the host.
"""
_SAFE_ROOT = re.compile(r"/[\w./+-]+", re.ASCII)
"""The root appears in shell text, inside and outside quotes; these characters are never special."""


class PhonePaths:
    """Translates between the phone's paths and the host's."""

    def __init__(self, root: Path) -> None:
        """Raises `PermanentError` for a folder whose name a shell could interpret as code."""
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
        """The place of a path of the phone, after following all links; `None` if it is outside.

        A file transfer never leaves the phone's folder, although a command can. A path that the
        host cannot look up, for example because a name is too long, also gives `None`.
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
    """Removes the phone's folder from a stream of output in pieces of any size."""

    def __init__(self, root: Path) -> None:
        self._sign = str(root).encode()
        self._held = b""

    def hide(self, chunk: bytes) -> bytes:
        """Returns text that can be sent; an end that may be the start of the path is kept back."""
        text = self._held + chunk
        sizes = range(min(len(self._sign), len(text)), 0, -1)
        keep = next((size for size in sizes if text.endswith(self._sign[:size])), 0)
        self._held = text[len(text) - keep :]
        return self._hidden(text[: len(text) - keep])

    def rest(self) -> bytes:
        """Returns the text that was kept back, at the end of the stream."""
        held, self._held = self._held, b""
        return b"/" if held == self._sign else held

    def _hidden(self, text: bytes) -> bytes:
        """Without the folder; alone on a line it is the phone's root: `pwd` there prints `/`."""
        return text.replace(self._sign + b"\n", b"/\n").replace(self._sign, b"")
