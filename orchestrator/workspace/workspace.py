"""A workspace: the folder with a user's sweeps, devices, model cards, files and results."""

import functools
import hashlib
import os
import platform
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fleetrank.foundation.errors import failing_as
from fleetrank.orchestrator.errors import UsageError

if TYPE_CHECKING:
    from fleetrank.analysis.stopping_rule import StoppingRule
    from fleetrank.analysis.stored.sweep_record import Provenance
    from fleetrank.orchestrator.identity import SweepFacts

LOCAL_CPU = "local-cpu"
"""The name that means this host's CPU on every host, so that a sweep file can be shared."""
_MARKER = "cluster.yaml"
"""The file that marks a folder as a workspace."""
_FOLDERS = ("sweeps", "devices", "cards")
_FILES = {
    # Packaging skips files whose name begins with a dot.
    "gitignore": ".gitignore",
    "README.md": "README.md",
    "example.yaml": "sweeps/example.yaml",
    # Written last, because this file makes the folder a workspace.
    "cluster.yaml": _MARKER,
}
"""Maps a template to its path in a new workspace."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths of a workspace; creates no folders.

    Attributes:
        root: absolute.
    """

    root: Path

    @property
    def sweeps(self) -> Path:
        """Folder of sweep specifications, `*.yaml`."""
        return self.root / "sweeps"

    @property
    def devices(self) -> Path:
        """Folder of device files, `*.yaml`, one per device."""
        return self.root / "devices"

    @property
    def cards(self) -> Path:
        """Folder of the user's own model cards, `*.toml`."""
        return self.root / "cards"

    @property
    def artifacts(self) -> Path:
        """Cache of exported files."""
        return self.root / "artifacts"

    @property
    def results(self) -> Path:
        """Folder of journals, Parquet files and sweep records."""
        return self.root / "results"

    @classmethod
    def init(cls, folder: Path) -> Self:
        """Creates a workspace with an example sweep; existing files are not changed.

        Raises:
            UsageError: the folder is already a workspace, or is not writable.
        """
        if (folder / _MARKER).exists():
            raise UsageError(
                f"{folder.resolve()} is already a workspace", "use it, or name another folder"
            )
        templates = resources.files("fleetrank.orchestrator").joinpath("templates")
        with failing_as(
            UsageError, f"{folder} cannot be made a workspace", "name another folder", OSError
        ):
            for name in _FOLDERS:
                (folder / name).mkdir(parents=True, exist_ok=True)
            for template, target in _FILES.items():
                if not (folder / target).exists():
                    text = templates.joinpath(template).read_text(encoding="utf-8")
                    (folder / target).write_text(text, encoding="utf-8")
        return cls.at(folder)

    @classmethod
    def find(cls, start: Path | None = None) -> Self:
        """Finds the workspace that contains `start` (default: the current folder).

        Raises:
            UsageError: neither the folder nor any folder above it is a workspace.
        """
        folder = (start or Path.cwd()).resolve()
        for candidate in (folder, *folder.parents):
            if is_workspace(candidate):
                return cls(candidate)
        default = default_root()
        known = f"; {default} has what `run` and `ab` measured elsewhere"
        raise UsageError(
            f"{folder} is not in a workspace: no {_MARKER} here or above",
            "make one with `fleetrank init DIR`, or name one with `workspace=DIR`"
            + (known if is_workspace(default) else ""),
        )

    @classmethod
    def at(cls, root: Path) -> Self:
        """Uses exactly this folder, as `--workspace` does.

        Raises:
            UsageError: the folder is not a workspace.
        """
        if not is_workspace(root):
            raise UsageError(
                f"{root} is not a workspace: it has no {_MARKER}",
                f"make it one with `fleetrank init {root}`",
            )
        return cls(root.resolve())


def is_workspace(folder: Path) -> bool:
    """Whether the folder itself is a workspace."""
    return (folder / _MARKER).is_file()


def default_root() -> Path:
    """The folder, in the user's own data, of commands that need no workspace; may not exist yet."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "fleetrank"


# The provenance of a result: code, versions, host and command line.

_GIT_TIMEOUT_S = 10.0
_MACHINE_ID = Path("/etc/machine-id")
_STAMP = "%Y%m%dT%H%M%S"
PACKAGES = (
    "ai-edge-litert", "litert-torch", "numpy", "onnx", "onnxruntime", "onnxscript", "polars",
    "ray", "tensorflow-cpu", "timm", "torch", "torchvision",
)  # fmt: skip
"""Packages used for exporting, measuring or storing."""


def new_sweep_id(name: str, known: Iterable[str] = (), now: datetime | None = None) -> str:
    """`<name>-<UTC stamp>-<4 hexadecimal digits>`: sorts by age and is unique.

    It sorts after the ids of the `known` sweeps, even if the clock was set back.
    """
    now = now or datetime.now(UTC)
    if lag := clock_lag(known, now):
        now += lag + timedelta(seconds=1)
    return f"{name}-{now.strftime(_STAMP)}-{secrets.token_hex(2)}"


def clock_lag(known: Iterable[str], now: datetime | None = None) -> timedelta:
    """How far the clock is behind the stamp of the newest known sweep; normally zero."""
    now = now or datetime.now(UTC)
    stamps = (stamp for sweep_id in known if (stamp := _stamp_of(sweep_id)) is not None)
    return max(max(stamps, default=now) - now, timedelta())


def _stamp_of(sweep_id: str) -> datetime | None:
    try:
        return datetime.strptime(sweep_id.split("-")[-2], _STAMP).replace(tzinfo=UTC)
    except (ValueError, IndexError):
        return None


def sweep_name(sweep_id: str) -> str:
    """The name in an id of `new_sweep_id`; another id is its own name."""
    return sweep_id if _stamp_of(sweep_id) is None else sweep_id.rsplit("-", 2)[0]


def sweep_facts(
    sweep_id: str, seed: int, folder: Path, until: "StoppingRule | None" = None
) -> "SweepFacts":
    """The values that all rows of a sweep share, read from this host and the workspace."""
    # Its types of networks and devices take longer to load than most commands need.
    from fleetrank.orchestrator.identity import SweepFacts

    return SweepFacts(
        sweep_id=sweep_id,
        seed=seed,
        fleetrank_version=package_versions(["fleetrank"]).get("fleetrank", "unknown"),
        git_commit=git_commit(folder),
        stopping_rule=None if until is None else str(until),
    )


def sweep_provenance(folder: Path) -> "Provenance":
    """Command line, versions, commit and host for the sweep's record."""
    # It loads Polars, which the processes of a host do not need.
    from fleetrank.analysis.stored.sweep_record import Provenance

    return Provenance(
        command_line=command_line(),
        python_version=sys.version.split()[0],
        versions=package_versions(["fleetrank", *PACKAGES]),
        git_commit=git_commit(folder),
        host=host_hash(),
    )


@functools.cache
def host_hash() -> str:
    """First 12 hexadecimal digits of the sha256 over host name and machine id.

    Rows never contain names or serial numbers: results are shared, names are private.
    """
    try:
        machine_id = _MACHINE_ID.read_text(encoding="ascii").strip()
    except OSError:
        machine_id = ""
    return hashlib.sha256(f"{platform.node()}\n{machine_id}".encode()).hexdigest()[:12]


def stored_name(device: str) -> str:
    """The name of a device in rows: `local-cpu` is the CPU of this host."""
    return f"cpu-{host_hash()[:6]}" if device == LOCAL_CPU else device


def git_commit(folder: Path) -> str | None:
    """The commit that is checked out in `folder`, with `-dirty` appended if files differ from it.

    `None` outside git, without a commit, or if git is not installed.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changes else commit


def package_versions(names: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of the installed packages; does not import them."""
    from importlib import metadata  # slow to import, and few commands need it

    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def command_line() -> str:
    """The command line, quoted so that it can be run again."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
