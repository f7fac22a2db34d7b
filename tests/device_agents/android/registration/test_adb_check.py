from pathlib import Path

import pytest

from fleetrank.device_agents.android.discovery import FoundAdb, check_adb, judge_adb

NEW_ADB = ("36.0.0-13206524", Path("/wheel/adb"))
OLD_ADB = ("29.0.6-debian", Path("/usr/bin/adb"))


@pytest.mark.parametrize("on_path", [None, NEW_ADB])
def test_one_version_of_adb_is_no_problem(on_path: FoundAdb | None) -> None:
    assert judge_adb(NEW_ADB, on_path).remedy is None


def test_two_versions_of_adb_are_both_named_with_what_settles_it() -> None:
    finding = judge_adb(NEW_ADB, OLD_ADB)
    for adb in (NEW_ADB, OLD_ADB):
        assert "{} at {}".format(*adb) in finding.message
    assert "FLEETRANK_ADB=/usr/bin/adb" in (finding.remedy or "")


def _fake_adb(path: Path, version: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"#!/bin/sh\necho Android Debug Bridge version 1.0.41\necho Version {version}\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_the_adb_that_measuring_would_use_is_the_one_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _fake_adb(tmp_path / "used" / "adb", "35.0.2-1")
    on_path = _fake_adb(tmp_path / "path" / "adb", "34.0.5-2")
    monkeypatch.setenv("FLEETRANK_ADB", str(used))
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=":")
    (finding,) = check_adb()
    assert finding.remedy is not None
    assert f"35.0.2-1 at {used}" in finding.message
    assert f"34.0.5-2 at {on_path}" in finding.message


def test_an_adb_that_is_not_where_it_is_said_to_be_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETRANK_ADB", str(tmp_path / "adb"))
    (finding,) = check_adb()
    assert "FLEETRANK_ADB" in (finding.remedy or "")
