from pathlib import Path

import pytest

from fleetrank.orchestrator import doctor
from fleetrank.orchestrator.cli.setup_commands import _conclude
from fleetrank.orchestrator.doctor import (
    LIBRARIES,
    MIN_FREE_DISK_BYTES,
    Finding,
    Level,
    check_host,
    check_software,
    import_failures,
    judge_confinement,
    judge_cores,
    judge_disk,
    judge_governor,
    judge_library,
    judge_load,
    judge_memory,
    judge_niceness,
    version_of,
)


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (judge_disk(MIN_FREE_DISK_BYTES), Level.OK),
        (judge_disk(MIN_FREE_DISK_BYTES - 1), Level.WARNING),
        (judge_disk(MIN_FREE_DISK_BYTES // 2 - 1), Level.ERROR),
        (judge_cores(2, 2, None), Level.OK),
        (judge_cores(2, 2, 1.5), Level.WARNING),
        (judge_cores(1, 2, None), Level.WARNING),
        (judge_governor(None), Level.OK),
        (judge_governor("performance"), Level.OK),
        (judge_governor("powersave"), Level.WARNING),
        (judge_load(0.05), Level.OK),
        (judge_load(0.5), Level.WARNING),
        (judge_niceness(0), Level.OK),
        (judge_niceness(15), Level.WARNING),
        (judge_confinement(7, has_filter=True), Level.OK),
        (judge_confinement(1, has_filter=False), Level.OK),
        (judge_confinement(None, has_filter=True), Level.WARNING),
        (judge_memory(8 * 1024**3), Level.OK),
        (judge_memory(1024**3), Level.WARNING),
        (judge_library(LIBRARIES[0], "1.0", None), Level.OK),
        (judge_library(LIBRARIES[0], None, None), Level.WARNING),
        (judge_library(LIBRARIES[0], "1.0", "OSError"), Level.ERROR),
    ],
)
def test_each_level_is_reached_at_its_threshold(finding: Finding, level: Level) -> None:
    assert finding.level is level
    assert (finding.remedy is None) == (level is Level.OK)


def test_a_missing_runtime_names_the_extra_to_install() -> None:
    finding = judge_library(LIBRARIES[2], None, None)
    assert "fleetrank[tflite]" in (finding.remedy or "")


def test_a_module_that_fails_to_import_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_over").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    targets = ["json", "no_such_module", "left_over"]
    assert list(import_failures(targets)) == targets[1:]


def test_an_installed_library_has_a_version() -> None:
    assert version_of("ray") is not None


def test_this_host_can_be_read(tmp_path: Path) -> None:
    checks = [finding.check for finding in check_host(tmp_path)]
    assert checks == ["disk", "memory", "cores", "governor", "load", "niceness", "confinement"]


@pytest.mark.parametrize(
    ("abi", "has_filter", "said"),
    [
        (7, True, "landlock7+seccomp+audit"),
        (7, False, "landlock7+audit"),
        (3, False, "leaves TCP open"),
        (None, True, "seccomp+audit: this kernel has no Landlock"),
        (None, False, "audit: this kernel has no Landlock"),
    ],
)
def test_the_doctor_says_which_walls_this_host_has(
    abi: int | None, has_filter: bool, said: str
) -> None:
    message = judge_confinement(abi, has_filter=has_filter).message
    assert said in message
    assert ("TCP open" in message) == (abi == 3)


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ((), {"runtimes"}),
        (("onnxruntime", "scipy"), {"runtime onnx", "exporter onnx", "tables", "sql"}),
    ],
)
def test_only_extras_of_which_something_is_installed_are_mentioned(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], said: set[str]
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(doctor, "version_of", lambda name: "1.0" if name in installed else None)
    monkeypatch.setattr(doctor, "import_failures", lambda names: tried.extend(names) or {})
    findings = {finding.check: finding for finding in check_software()}
    assert set(findings) == said
    assert tried == ["onnxruntime", "scipy.special"] * bool(installed)
    # Half of an extra is a warning, no runtime at all an error.
    levels = {name: one.level for name, one in findings.items() if one.level is not Level.OK}
    broken = dict.fromkeys(("exporter onnx", "sql"), Level.WARNING)
    assert levels == (broken if installed else {"runtimes": Level.ERROR})


def test_the_doctor_ends_with_ready_or_with_two_things_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [judge_governor("powersave"), judge_load(0.5), judge_disk(0), judge_niceness(15)]
    for findings, start, n_lines in (
        ([judge_load(0.0)], "ready", 1), (found[:1], "ready; for better figures:", 2),
        (found, "not ready, to do:", 4),
    ):  # fmt: skip
        _conclude(findings)
        _, first, *others = capsys.readouterr().out.splitlines()
        assert (first, len(others)) == (start, n_lines - 1)
    assert "disk" in others[0], "an error comes first"
    assert "2 more things" in others[-1]


@pytest.mark.thorough
def test_every_library_of_this_installation_loads() -> None:
    assert [finding for finding in check_software() if finding.level is Level.ERROR] == []


@pytest.mark.slow
def test_the_import_of_onnx_runtime_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    assert import_failures(["onnxruntime"]) == {}
    assert list(tmp_path.iterdir()) == []
