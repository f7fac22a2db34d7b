import stat
from pathlib import Path

import pytest

from fleetrank.device_agents.android.execution.program_files import (
    ProgramFile,
    file_sha256,
    read_program,
)
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.errors import PermanentError


def kept(store: ProgramStore, folder: Path) -> ProgramFile:
    path = folder / "mine"
    path.write_text("#!/bin/sh\n")
    program = ProgramFile(name="benchmark_model", path=path, sha256=file_sha256(path))
    store.add(program)
    return program


def test_a_program_is_kept_whatever_becomes_of_the_users_file(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path / "store")
    program = kept(store, tmp_path)
    program.path.write_text("another")
    assert store.find(program.name, program.sha256).path.read_text() == "#!/bin/sh\n"
    assert stat.S_IMODE(store.folder.stat().st_mode) & stat.S_IWOTH == 0


def test_a_program_that_is_gone_has_to_be_given_again(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path / "store")
    program = kept(store, tmp_path)
    store.find(program.name, program.sha256).path.write_text("another")
    with pytest.raises(PermanentError) as caught:
        store.find(program.name, program.sha256)
    assert "`tool=benchmark_model=PATH`" in caught.value.remedy


def test_a_file_that_changed_after_it_was_chosen_is_not_kept(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path / "store")
    path = tmp_path / "mine"
    path.write_text("new")
    with pytest.raises(PermanentError, match="changed"):
        store.add(ProgramFile(name="benchmark_model", path=path, sha256="0" * 64))
    assert [each for each in store.folder.rglob("*") if each.is_file()] == []


def kept_folder(store: ProgramStore, folder: Path) -> ProgramFile:
    folder.mkdir()
    (folder / "benchmark_model").write_text("program")
    (folder / "libQnn.so").write_text("library")
    program = read_program("benchmark_model", folder)
    store.add(program)
    return program


def test_a_folder_is_kept_whole(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path / "store")
    program = kept_folder(store, tmp_path / "mine")
    (tmp_path / "mine/libQnn.so").write_text("another")
    found = store.find(program.name, program.sha256)
    assert found.sha256 == program.sha256
    assert [part.path.read_text() for part in found.parts] == ["program", "library"]


@pytest.mark.parametrize("name", ["libQnn.so", "libmore.so"])
def test_a_kept_folder_with_another_or_one_more_library_is_not_used(
    tmp_path: Path, name: str
) -> None:
    store = ProgramStore(tmp_path / "store")
    program = kept_folder(store, tmp_path / "mine")
    (store.folder / program.sha256 / name).write_text("another")
    with pytest.raises(PermanentError, match="is not in"):
        store.find(program.name, program.sha256)
    store.add(program)
    assert len(store.find(program.name, program.sha256).parts) == 2
