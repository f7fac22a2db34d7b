import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.confinement.grants import Grants, grants_of
from fleetrank.device_agents.confinement.walls import AuditWall
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.foundation.vocabulary import Mode, Runtime
from tests.device_agents.conftest import MakeTask


def wall_in(folder: Path) -> AuditWall:
    for name in ("installation", "scratch"):
        (folder / name).mkdir(exist_ok=True)
    return AuditWall(
        Grants(
            installation=(str(folder / "installation"),),
            readable=(str(folder / "artifact"),),
            writable=(str(folder / "out"),),
            scratch=str(folder / "scratch"),
            starts_programs=False,
        )
    )


@pytest.fixture
def wall(tmp_path: Path) -> AuditWall:
    return wall_in(tmp_path)


READ, WRITE = os.O_RDONLY, os.O_WRONLY | os.O_CREAT


@pytest.mark.parametrize(
    ("name", "flags", "is_allowed"),
    [
        ("installation/lib.py", READ, True),
        ("installation/lib.py", WRITE, False),
        ("artifact", READ, True),
        ("artifact", os.O_RDWR, False),
        ("artifact-of-another", READ, False),
        ("artifact/../secret", READ, False),
        ("installation/../secret", READ, False),
        ("installation-of-another/x", READ, False),
        ("out", WRITE, True),
        ("scratch/a/b", WRITE, True),
        ("scratch/a/b", READ, True),
        ("scratch/../secret", WRITE, False),
        ("secret", READ, False),
    ],
)
@pytest.mark.parametrize("form", [str, os.fsencode, Path])
def test_a_file_is_opened_where_it_is_granted(
    name: str, flags: int, is_allowed: bool, form: type, wall: AuditWall, tmp_path: Path
) -> None:
    path = form(f"{tmp_path}/{name}")
    with contextlib.nullcontext() if is_allowed else pytest.raises(PermissionError):
        wall._judge("open", (path, None, flags))
    # A library may look for its settings elsewhere; it may not write there.
    assert (wall.refusal is None) == (is_allowed or flags == READ)


def test_a_link_in_the_scratch_folder_leads_nowhere(wall: AuditWall, tmp_path: Path) -> None:
    (tmp_path / "scratch" / "link").symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        wall._judge("open", (str(tmp_path / "scratch/link/secret"), None, WRITE))


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.system", (b"true",)),
        ("subprocess.Popen", ("true", ["true"], None, None)),
        ("os.exec", ("/bin/true", ["true"], None)),
        ("os.posix_spawn", ("/bin/true", ["true"], {})),
        ("os.fork", ()),
        ("socket.connect", (None, ("127.0.0.1", 80))),
        ("socket.bind", (None, ("127.0.0.1", 0))),
        ("socket.sendto", (None, ("127.0.0.1", 53))),
        ("ctypes.dlopen", ("scratch/evil.so",)),
        ("import", ("evil", "/tmp/evil.so", None, None, None)),
        ("os.remove", ("secret", -1)),
        ("os.rename", ("scratch/a", "secret", -1, -1)),
        ("os.symlink", ("/etc/passwd", "link", -1)),
    ],
)
def test_what_no_network_does_is_refused_and_named(
    event: str, arguments: tuple[object, ...], wall: AuditWall
) -> None:
    with pytest.raises(PermissionError):
        wall._judge(event, arguments)
    assert wall.refusal


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("import", ("json", None, [], [], [])),
        ("ctypes.dlopen", (None,)),
        ("ctypes.dlopen", ("libc.so.6",)),
        ("open", (3, "r", 0)),
        ("compile", (b"1", "<string>")),
        ("socket.__new__", (None, 2, 1, 0)),
    ],
)
def test_what_runtimes_do_is_not(
    event: str, arguments: tuple[object, ...], wall: AuditWall
) -> None:
    wall._judge(event, arguments)
    assert wall.refusal is None


PATHS = st.text() | st.binary() | st.integers() | st.none() | st.floats()


@given(event=st.sampled_from(["open", "os.remove", "ctypes.dlopen"]), path=PATHS)
def test_any_path_ends_in_a_judgement(
    event: str, path: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wall = wall_in(tmp_path_factory.getbasetemp())
    with contextlib.suppress(PermissionError):
        wall._judge(event, (path, None, WRITE))


def test_the_first_refusal_is_kept_and_its_text_is_bounded(wall: AuditWall) -> None:
    for path in ("\x1b[2J" + "x" * 100_000, "second"):
        with pytest.raises(PermissionError):
            wall._judge("open", (path, None, WRITE))
    assert len(wall.refusal) < 300
    assert wall.refusal.isprintable()
    assert "second" not in wall.refusal


def test_a_task_is_granted_its_own_files_and_no_folder_around_them(
    task_of: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"relative:{tmp_path / 'cuda'}::{Path.home()}:/")
    (tmp_path / "cuda").mkdir()
    task = task_of(Runtime.ONNX)
    grants = grants_of(task, str(tmp_path))
    assert str(Path(task.artifact_path).resolve()) in grants.readable
    assert str(tmp_path / "cuda") in grants.installation
    assert grants.writable == ("/dev/null",)
    assert not grants.starts_programs
    places = [Path(place) for place in (*grants.installation, *grants.readable)]
    closed = (Path.home(), Path.cwd() / "results", Path("/etc/passwd"), Path("/etc/shadow"))
    assert [c for c in closed for place in places if c.is_relative_to(place)] == []


def test_only_a_task_for_a_gpu_is_granted_its_nodes(
    task_of: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.device_agents.confinement.grants._GPU_NODES", ("zero",))
    threads = f"/proc/{os.getpid()}/task"
    for backend, nodes in (("cpu", ()), ("cuda", ("/dev/zero", threads))):
        execution = task_of(Runtime.ONNX).execution
        task = task_of(Runtime.ONNX, execution=type(execution)(
            runtime=Runtime.ONNX, backend=backend, mode=Mode.EAGER))  # fmt: skip
        assert grants_of(task, str(tmp_path)).writable == ("/dev/null", *nodes)


def test_the_outputs_of_a_verification_exist_before_the_walls_stand(
    task_of: MakeTask, tmp_path: Path
) -> None:
    measured = task_of(Runtime.ONNX)
    outputs = tmp_path / "outputs.npz"
    task = InferTask(
        task_id="v",
        artifact_path=measured.artifact_path,
        artifact_sha256=measured.artifact_sha256,
        execution=measured.execution,
        inputs_path=measured.artifact_path,
        outputs_path=str(outputs),
    )
    assert str(outputs) in grants_of(task, str(tmp_path)).writable
    assert outputs.read_bytes() == b""
