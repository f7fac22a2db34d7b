from functools import partial
from pathlib import Path

import pytest

from fleetrank.orchestrator import doctor_host, doctor_software
from fleetrank.orchestrator.cli.setup_commands import _conclude
from fleetrank.orchestrator.doctor import Severity
from fleetrank.orchestrator.doctor_software import LIBRARIES, check_software, import_failures

confinement = partial(doctor_host.judge_confinement, has_filter=True)
OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


@pytest.mark.parametrize(
    ("judge", "given", "level"),
    [
        (doctor_host.judge_disk, (doctor_host.MIN_FREE_DISK_BYTES,), OK),
        (doctor_host.judge_disk, (doctor_host.MIN_FREE_DISK_BYTES - 1,), WARNING),
        (doctor_host.judge_disk, (doctor_host.MIN_FREE_DISK_BYTES // 2 - 1,), ERROR),
        (doctor_host.judge_cores, (2, 2, None), OK),
        (doctor_host.judge_cores, (2, 2, 1.5), WARNING),
        (doctor_host.judge_cores, (1, 2, None), WARNING), (doctor_host.judge_governor, (None,), OK),
        (doctor_host.judge_governor, ("performance",), OK),
        (doctor_host.judge_governor, ("powersave",), WARNING),
        (doctor_host.judge_load, (0.05,), OK), (doctor_host.judge_load, (0.5,), WARNING),
        (doctor_host.judge_niceness, (0,), OK), (doctor_host.judge_niceness, (15,), WARNING),
        (confinement, (7,), OK), (confinement, (1,), OK), (confinement, (None,), WARNING),
        (doctor_host.judge_memory, (8 * 1024**3,), OK),
        (doctor_host.judge_memory, (1024**3,), WARNING),
        (doctor_software.judge_library, (LIBRARIES[0], "1.0", None), OK),
        (doctor_software.judge_library, (LIBRARIES[0], None, None), WARNING),
        (doctor_software.judge_library, (LIBRARIES[0], "1.0", "OSError"), ERROR),
    ],
)  # fmt: skip
def test_each_level_is_reached_at_its_threshold(judge, given, level: Severity) -> None:
    finding = judge(*given)
    assert finding.level is level
    assert (finding.remedy is None) == (level is Severity.OK)


def test_a_missing_runtime_names_the_extra_to_install() -> None:
    finding = doctor_software.judge_library(LIBRARIES[2], None, None)
    assert "fleetrank[tflite]" in (finding.remedy or "")


def test_a_module_that_fails_to_import_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_over").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "__init__.py").touch()
    (tmp_path / "half" / "_C.so").write_text("no library")
    targets = ["json", "numpy/linalg/_umath_linalg.*", "no_such_module", "left_over"]
    targets += ["no_such/_C.*", "half/_D.*", "half/_C.*"]
    failures = import_failures(targets)
    assert list(failures) == targets[2:]
    assert "has no file _D" in failures["half/_D.*"]
    assert "too short" in failures["half/_C.*"]


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        ("torch (==2.13.0)", None), ("torch==2.13.0", None), ("torch>=3", None),
        ("torch==2.12.1; extra == 'old'", None),
        ("torch==2.12.1", "it needs torch 2.12.1, and 2.13.0+cpu is installed"),
        ("no_such==1.0", "it needs no_such 1.0, and none is installed"),
    ],
)  # fmt: skip
def test_a_library_made_for_another_release_is_named(
    monkeypatch: pytest.MonkeyPatch, requirement: str, said: str | None
) -> None:
    versions = {"torch": "2.13.0+cpu"}
    monkeypatch.setattr(doctor_software, "version_of", versions.get)
    monkeypatch.setattr(doctor_software.metadata, "requires", lambda name: [requirement])
    assert doctor_software.unmet_pin("torchvision") == said


def test_the_usual_check_loads_of_torch_its_compiled_file_alone() -> None:
    tried = [one.tried(is_thorough=False) for one in LIBRARIES if one.extra == "torch"]
    assert [one for one in tried if one] == ["torch/_C.*"]
    assert all(one.tried(is_thorough=True) for one in LIBRARIES)


def test_an_installed_library_has_a_version() -> None:
    assert doctor_software.version_of("ray") is not None


def test_this_host_can_be_read(tmp_path: Path) -> None:
    checks = [finding.check for finding in doctor_host.check_host(tmp_path)]
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
    message = doctor_host.judge_confinement(abi, has_filter=has_filter).message
    assert said in message
    assert ("TCP open" in message) == (abi == 3)


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ((), {"runtimes"}),
        (("onnxruntime", "duckdb"), {"runtime onnx", "exporter onnx", "sql"}),
    ],
)
def test_only_extras_of_which_something_is_installed_are_mentioned(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], said: set[str]
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(
        doctor_software, "version_of", lambda name: "1.0" if name in installed else None
    )
    monkeypatch.setattr(doctor_software, "import_failures", lambda names: tried.extend(names) or {})
    findings = {finding.check: finding for finding in check_software()}
    assert set(findings) == said
    assert tried == ["onnxruntime", "duckdb"] * bool(installed)
    # Half of an extra is a warning, no runtime at all an error.
    levels = {name: one.level for name, one in findings.items() if one.level is not Severity.OK}
    broken = {"exporter onnx": Severity.WARNING}
    assert levels == (broken if installed else {"runtimes": Severity.ERROR})


def test_the_doctor_ends_with_ready_or_with_two_things_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        doctor_host.judge_governor("powersave"),
        doctor_host.judge_load(0.5),
        doctor_host.judge_disk(0),
        doctor_host.judge_niceness(15),
    ]
    for findings, start, n_lines in (
        ([doctor_host.judge_load(0.0)], "ready", 1), (found[:1], "ready; for better figures:", 2),
        (found, "not ready, to do:", 4),
    ):  # fmt: skip
        _conclude(findings)
        _, first, *others = capsys.readouterr().out.splitlines()
        assert (first, len(others)) == (start, n_lines - 1)
    assert "disk" in others[0], "an error comes first"
    assert "2 more things" in others[-1]


@pytest.mark.thorough
def test_every_library_of_this_installation_loads() -> None:
    assert [finding for finding in check_software() if finding.level is Severity.ERROR] == []


@pytest.mark.slow
def test_the_import_of_onnx_runtime_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    assert import_failures(["onnxruntime"]) == {}
    assert list(tmp_path.iterdir()) == []
