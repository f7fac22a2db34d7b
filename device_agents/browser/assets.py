"""The files that a page loads: our own, and the libraries that npm installs and hashes pin.

`python -m fleetrank.device_agents.browser.assets` makes the folder of libraries once, with npm;
nothing is fetched when a page is served.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fleetrank.device_agents.errors import MissingLibraryError, PermanentError
from fleetrank.foundation.small_file import file_sha256

PAGE = Path(__file__).parent / "page"
LIBRARIES = PAGE / "libraries"
_OWN = ("index.html", "page.css", "page.js", "timing.js", "worker.js")
_PACKAGE, _FILE = b"@litertjs/wasm-utils", b"./litert-wasm-utils.js"
"""A worker has no import map, so the name of a package becomes that of a file beside it."""
_LIMIT_S = 600.0
REMEDY = "`make browser-assets`, or `python -m fleetrank.device_agents.browser.assets` (needs npm)"


def manifest() -> Mapping[str, tuple[str, str]]:
    """Name of each library's file to its path in npm's folder and its SHA-256."""
    content = json.loads((PAGE / "libraries.json").read_text())
    return {name: (one["from"], one["sha256"]) for name, one in content.items()}


@cache
def served_files() -> Mapping[str, Path]:
    """Name to file of everything that a page may load.

    Raises:
        MissingLibraryError: the libraries are not installed.
        PermanentError: one is another file than the pinned one.
    """
    found = {name: PAGE / name for name in _OWN}
    for name, (_source, sha256) in manifest().items():
        path = LIBRARIES / name
        if not path.is_file():
            raise MissingLibraryError("the libraries for browsers are not installed", REMEDY)
        if file_sha256(path) != sha256:
            raise PermanentError(f"{path} is not the file that fleetrank was tested with", REMEDY)
        found[name] = path
    return found


@cache
def pinned_versions() -> Mapping[str, str]:
    """The pinned version of each package."""
    versions: dict[str, str] = json.loads((PAGE / "package.json").read_text())["dependencies"]
    return versions


@cache
def version() -> str:
    """A hash of all served files: browsers keep them under it."""
    digest = hashlib.sha256((PAGE / "libraries.json").read_bytes())
    for name in _OWN:
        digest.update((PAGE / name).read_bytes())
    return digest.hexdigest()[:16]


def install() -> None:
    """Installs the pinned packages with npm and copies the needed files.

    Raises:
        MissingLibraryError: npm is missing.
        PermanentError: npm failed, or a file is not the pinned one.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise MissingLibraryError("npm is not installed", "install Node.js, which has it")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PAGE / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, text=True, timeout=_LIMIT_S
        )
        if done.returncode != 0:
            raise PermanentError(f"npm failed: {done.stderr.strip()[-300:]}", "check the network")
        LIBRARIES.mkdir(exist_ok=True)
        for name, (source, sha256) in manifest().items():
            content = (Path(folder) / "node_modules" / source).read_bytes()
            if name.endswith(".js"):
                content = content.replace(_PACKAGE, _FILE)
            if hashlib.sha256(content).hexdigest() != sha256:
                raise PermanentError(f"{source} is not the pinned file", "report this")
            (LIBRARIES / name).write_bytes(content)


if __name__ == "__main__":
    install()
    print(f"installed in {LIBRARIES}", file=sys.stderr)  # noqa: T201 - a command
