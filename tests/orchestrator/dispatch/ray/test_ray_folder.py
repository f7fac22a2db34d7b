"""Other users of this host get nothing of the embedded Ray."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fleetrank.orchestrator.dispatch.local_ray import inside, local_ray, make_ray_folder
from fleetrank.orchestrator.errors import OrchestratorError

_STRANGER = 65534
_AS_STRANGER = """
import json, os, socket, sys
known, uid = json.load(sys.stdin), int(sys.argv[1])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
got = []
def attempt(what, act):
    try:
        act()
    except OSError:
        return
    got.append(what)
for path in known["folders"]:
    attempt("list " + path, lambda: os.listdir(path))
    attempt("write " + path, lambda: open(path + "/stranger", "w").close())
for path in known["files"]:
    attempt("read " + path, lambda: open(path, "rb").close())
for path in known["sockets"]:
    attempt("connect " + path, lambda: socket.socket(socket.AF_UNIX).connect(path))
print(json.dumps(got))
"""


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray forgets its processes
def test_no_other_user_enters_what_the_embedded_ray_has() -> None:
    import ray

    with local_ray():
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        outer = session.parent.parent
        found = outer.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.getuid(), 0o700)
        assert outer.name.startswith("fleetrank-ray-")
        known = _contents(outer)
        assert any(path.endswith("plasma_store") for path in known["sockets"])
        assert any(path.endswith("/token") for path in known["files"])
        assert any("/logs/" in path for path in known["files"])
        assert _made_elsewhere(outer) == []
        assert ray.get(ray.remote(lambda: 7).remote()) == 7
        if os.getuid() == 0:
            assert _as_stranger(known) == []
    assert not outer.exists()


def _contents(folder: Path) -> dict[str, list[str]]:
    kinds = {"folders": stat.S_ISDIR, "files": stat.S_ISREG, "sockets": stat.S_ISSOCK}
    modes = {str(path): path.lstat().st_mode for path in (folder, *folder.rglob("*"))}
    return {
        name: [path for path, mode in modes.items() if is_kind(mode)]
        for name, is_kind in kinds.items()
    }


def _made_elsewhere(outer: Path) -> list[str]:
    """Files of Ray's processes outside of the folder that a stranger may write."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            links = [link.readlink() for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if str(outer).encode() in command:
            found += [str(link) for link in links if _is_shared(link, outer)]
    return found


def _is_shared(link: Path, outer: Path) -> bool:
    """Whether its name is still there, and a stranger may write it."""
    try:
        mode = link.stat().st_mode
    except OSError:
        return False
    is_open = stat.S_ISREG(mode) and bool(mode & stat.S_IWOTH)
    return is_open and not link.is_relative_to(outer)


def _as_stranger(known: dict[str, list[str]]) -> object:
    ended = subprocess.run(
        [sys.executable, "-I", "-c", _AS_STRANGER, str(_STRANGER)],
        input=json.dumps(known),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout)


def test_a_place_where_others_change_names_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Short, as the path of a socket has to be.
    shared = Path(tempfile.mkdtemp(prefix="fr", dir="/tmp"))
    try:
        monkeypatch.setenv("RAY_TMPDIR", str(shared))
        shared.chmod(0o777)
        _check(shared, is_used=False)
        shared.chmod(0o1777)
        _check(shared, is_used=True)
        shared.chmod(0o700)
        _check(shared, is_used=True)
    finally:
        shared.rmdir()


def _check(place: Path, *, is_used: bool) -> None:
    made = make_ray_folder()
    folder = made.path
    try:
        assert (folder.parent == place) is is_used
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        socket = inside(folder) / "session_2026-11-22_01-36-51_517459_4194304/sockets/plasma_store"
        assert len(os.fsencode(socket)) <= 107
    finally:
        folder.rmdir()
        os.close(made.lock)


def test_a_path_too_long_for_a_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("RAY_TMPDIR", str(long))
    made = make_ray_folder()
    made.path.rmdir()
    os.close(made.lock)
    assert made.path.parent != long


def test_no_safe_place_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.dispatch.local_ray._is_safe", lambda _: False)
    with pytest.raises(OrchestratorError, match="safe from other users") as raised:
        make_ray_folder()
    assert "TMPDIR" in raised.value.remedy
