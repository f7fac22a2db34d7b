"""The provenance of a result: code, versions, host and command line."""

import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.installation import PACKAGES, host_hash, package_versions

if TYPE_CHECKING:
    from fleetrank.analysis.stopping_rule import StoppingRule
    from fleetrank.analysis.stored.sweep_record import Provenance
    from fleetrank.orchestrator.identity import SweepFacts

_GIT_TIMEOUT_S = 10.0
_STAMP = "%Y%m%dT%H%M%S"


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


def git_commit(folder: Path) -> str | None:
    """The commit that is checked out in `folder`, with `-dirty` appended if files differ from it.

    `None` outside git, without a commit, or if git is not installed.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changes else commit


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
