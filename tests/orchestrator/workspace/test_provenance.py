import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetrank.analysis.stored.sweep_record import Provenance
from fleetrank.foundation import installation
from fleetrank.foundation.installation import host_hash, package_versions
from fleetrank.orchestrator.workspace.provenance import (
    clock_lag,
    command_line,
    git_commit,
    new_sweep_id,
    sweep_facts,
    sweep_provenance,
)


def _git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.slow
def test_the_commit_is_named_and_a_changed_file_makes_it_dirty(tmp_path) -> None:
    assert git_commit(tmp_path) is None
    _git(tmp_path, "init", "-q")
    assert git_commit(tmp_path) is None
    (tmp_path / "a").write_text("1")
    _git(tmp_path, "add", "a")
    _git(tmp_path, "commit", "-q", "-m", "a")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    assert git_commit(tmp_path) == commit
    (tmp_path / "untracked").write_text("1")
    assert git_commit(tmp_path) == commit
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == f"{commit}-dirty"


@pytest.mark.slow
def test_without_git_there_is_no_commit(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit(tmp_path) is None


def test_the_host_is_a_hash_that_names_nobody(monkeypatch) -> None:
    host_hash.cache_clear()
    monkeypatch.setattr("platform.node", lambda: "secret-name")
    monkeypatch.setattr(installation, "_MACHINE_ID", Path("/none"))
    one = host_hash()
    host_hash.cache_clear()
    monkeypatch.setattr("platform.node", lambda: "other-name")
    other = host_hash()
    host_hash.cache_clear()
    assert re.fullmatch("[0-9a-f]{12}", one)
    assert one != other


@pytest.mark.slow
def test_provenance_fits_into_the_record_and_loads_nothing_heavy(tmp_path) -> None:
    record = Provenance.model_validate_json(sweep_provenance(tmp_path).model_dump_json())
    assert record.versions["numpy"] == package_versions(["numpy"])["numpy"]
    assert record.python_version == sys.version.split()[0]
    assert package_versions(["no-such-package"]) == {}
    assert (
        sweep_facts("s", 3, tmp_path).fleetrank_version
        == package_versions(["fleetrank"])["fleetrank"]
    )


def test_sweep_ids_sort_by_age_and_differ() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert re.fullmatch("quick-20260102T030405-[0-9a-f]{4}", new_sweep_id("quick", now=now))
    assert len({new_sweep_id("quick", now=now) for _ in range(20)}) > 15


def test_a_sweep_sorts_behind_those_before_it_when_the_clock_was_set_back() -> None:
    tomorrow = datetime(2026, 1, 3, 3, 4, 5, tzinfo=UTC)
    now = tomorrow - timedelta(days=1)
    known = ["b-20260101T000000-ffff", "quick-20260103T030405-ffff", "no-stamp-x", "odd"]
    assert clock_lag(known, now) == timedelta(days=1)
    assert clock_lag(known, tomorrow) == clock_lag([], now) == timedelta()
    assert re.fullmatch("a-20260103T030406-[0-9a-f]{4}", new_sweep_id("a", known, now))


@pytest.mark.parametrize(
    ("argv", "line"), [(["/x/fleetrank", "sweep", "a b"], "fleetrank sweep 'a b'")]
)
def test_the_command_can_be_typed_again(monkeypatch, argv, line) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert command_line() == line
