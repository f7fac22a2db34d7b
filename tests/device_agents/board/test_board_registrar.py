"""A board is registered, checked, set up and removed, over a real sshd."""

import ensurepip
import shutil
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from ssh_board import SshBoard

from fleetrank.device_agents.board import board_probe
from fleetrank.device_agents.board.board_registrar import (
    VENV_PYTHON,
    BoardRegistrar,
    requirements_of,
    wheel_tags,
)
from fleetrank.device_agents.board.board_state import read_options
from fleetrank.device_agents.contract.kind import (
    CanaryFile,
    RegisteredDevice,
    RegistrationData,
    RegistrationRequest,
)
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError, TransientError, UnsupportedError
from fleetrank.device_agents.registration import try_out
from fleetrank.device_agents.registration_changes import changes_between
from tests.device_agents.conftest import sha256

_LIGHT = (("numpy", "numpy", "numpy"), ("onnx", "onnxruntime", "onnxruntime"),
          ("tflite", "ai_edge_litert.interpreter", "ai-edge-litert"))  # fmt: skip
"""Without PyTorch, whose import takes half of this file's time."""


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_probe, "_libraries", lambda: _LIGHT)


def request_of(board: SshBoard, **options: OptionValue) -> RegistrationRequest:
    known = {name: value for name, value in board.options.items() if name != "ssh"}
    return RegistrationRequest(address="board", options={**known, **options})


@pytest.mark.thorough
@pytest.mark.slow
def test_a_board_is_registered_and_checked(board: SshBoard, tflite_file: Path) -> None:
    said: list[str] = []
    registrar = BoardRegistrar({})
    found = registrar.meet(request_of(board, python=sys.executable), said.append)
    options = found.options({})
    assert options["runtimes"] == "onnx,tflite"
    assert read_options(options).cpus is not None
    assert found.identity == registrar.identity_of(options)
    canary = CanaryFile(path=str(tflite_file), sha256=sha256(tflite_file))
    data = try_out(found, options, lambda: canary, said.append)
    assert len(data.canary_latency_ns) == 2
    assert data.facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert any("onnx" in line and "numpy" in line for line in said)

    # A second registration knows the options of the first.
    again = BoardRegistrar(options).meet(RegistrationRequest(address="board"), said.append)
    before = RegisteredDevice(options=options, registration=data)
    steady = RegistrationData(facts=data.facts, clusters=data.clusters)
    after = RegisteredDevice(options=again.options(options), registration=steady)
    assert changes_between(registrar, before, after) == ()

    assert board.cache.is_dir()
    registrar.clean(options)
    assert not board.cache.exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_python_without_numpy_says_how_to_set_the_board_up(board: SshBoard) -> None:
    venv.create(board.home / "bare", symlinks=True)
    bare = board.home / "bare" / "bin" / "python"
    with pytest.raises(UnsupportedError) as caught:
        BoardRegistrar({}).meet(request_of(board, python=str(bare)), lambda _line: None)
    assert "NumPy" in caught.value.message
    assert "`setup=" in caught.value.remedy


@pytest.mark.thorough
@pytest.mark.slow
def test_a_board_without_network_is_set_up_from_here(
    board: SshBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of pip is a folder here, and the board has no index at all."""
    index = tmp_path / "index"
    index.mkdir()
    for name in ("numpy", "onnxruntime"):
        _wheel(index, name)
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    shutil.copy(pip, index)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    said: list[str] = []
    known = request_of(board, python=sys.executable)
    request = RegistrationRequest(address="board", options=known.options, setup=("onnx",))
    found = BoardRegistrar({}).meet(request, said.append)
    options = found.options({})
    assert (options["python"], options["runtimes"]) == (VENV_PYTHON, "onnx")
    assert (board.home / VENV_PYTHON).exists()
    assert board.files == [], "the wheels do not stay"
    # Without --python the environment is found again.
    plain = BoardRegistrar({}).meet(request_of(board), said.append)
    assert plain.options({})["python"] == VENV_PYTHON


def _wheel(folder: Path, name: str, version: str = "1.0") -> None:
    """An empty library of this name."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
        archive.writestr(f"{info}/RECORD", record)


@pytest.mark.thorough
@pytest.mark.slow
def test_no_wheels_for_a_board_is_an_error_with_pip_s_words(
    board: SshBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    known = request_of(board, python=sys.executable)
    request = RegistrationRequest(address="board", options=known.options, setup=("onnx",))
    with pytest.raises(TransientError, match="no wheels"):
        BoardRegistrar({}).meet(request, lambda _line: None)


def test_all_tags_of_a_c_library_are_listed_for_pip() -> None:
    tags = wheel_tags("linux-aarch64", "glibc 2.36")
    assert tags[0] == "manylinux_2_36_aarch64"
    assert {"manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"} <= {*tags}
    old = wheel_tags("linux-armv7l", "glibc 2.31")
    assert "manylinux_2_34_armv7l" not in old


@pytest.mark.parametrize("libc", ["", "musl 1.2", "glibc 3"])
def test_a_c_library_without_wheels_is_named(libc: str) -> None:
    with pytest.raises(UnsupportedError, match="C library"):
        wheel_tags("linux-aarch64", libc)


def test_only_runtimes_can_be_set_up() -> None:
    with pytest.raises(UnsupportedError, match="onix"):
        requirements_of(["onix"])


@pytest.mark.parametrize(
    "options",
    [
        {"ssh": "a", "tier": "toy"},
        {"ssh": "a", "runtimes": "onnx,abacus"},
        {"ssh": "a", "caps_mhz": "fast"},
        {"ssh": "a", "cpus": "four"},
        {},
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, OptionValue]) -> None:
    with pytest.raises(PermanentError):
        read_options(options)
