import os
from pathlib import Path

import pytest

from fleetrank.device_agents.android.execution import program_files
from fleetrank.device_agents.android.execution.program_files import file_sha256, read_program
from fleetrank.device_agents.errors import PermanentError

NAME = "benchmark_model"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "qnn"
    made.mkdir()
    (made / NAME).write_text("program")
    (made / "libQnnHtp.so").write_text("library")
    return made


def test_one_file_is_named_by_its_own_checksum(folder: Path) -> None:
    path = folder / NAME
    program = read_program(NAME, path)
    assert (program.sha256, program.folder) == (file_sha256(path), ())
    assert [part.name for part in program.parts] == [NAME]


def test_a_folder_is_named_by_every_name_and_content_in_it(folder: Path) -> None:
    whole = read_program(NAME, folder)
    assert [part.name for part in whole.parts] == [NAME, "libQnnHtp.so"]
    seen = {whole.sha256}
    (folder / "libQnnHtp.so").write_text("another")
    seen.add(read_program(NAME, folder).sha256)
    (folder / "libQnnHtp.so").rename(folder / "libQnnHtpV75.so")
    seen.add(read_program(NAME, folder).sha256)
    (folder / NAME).write_text("another program")
    seen.add(read_program(NAME, folder).sha256)
    assert len(seen) == 4
    assert file_sha256(folder / NAME) not in seen


def test_a_folder_without_the_program_is_refused(folder: Path) -> None:
    with pytest.raises(PermanentError, match="executor_runner"):
        read_program("executor_runner", folder)


@pytest.mark.parametrize(
    "name", ["-rf", "a b", "a\nb", "$(id)", ".hidden", "x.part", "é.so", "a" * 65, "a;b"]
)
def test_a_name_that_a_phone_could_misread_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("")
    with pytest.raises(PermanentError, match="has the name"):
        read_program(NAME, folder)


def test_a_link_is_refused_wherever_it_leads(folder: Path) -> None:
    (folder / "libinside.so").symlink_to(folder / NAME)
    with pytest.raises(PermanentError, match="libinside"):
        read_program(NAME, folder)


def test_a_pipe_and_a_folder_are_refused_without_reading_them(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(PermanentError, match="pipe"):
        read_program(NAME, folder)
    (folder / "pipe").unlink()
    (folder / "lib").mkdir()
    with pytest.raises(PermanentError, match="lib,"):
        read_program(NAME, folder)


def test_too_many_files_are_refused(folder: Path) -> None:
    for number in range(program_files.MAX_FILES):
        (folder / f"lib{number}.so").write_text("")
    with pytest.raises(PermanentError, match="64 files"):
        read_program(NAME, folder)


def test_too_large_files_are_refused_before_they_are_read(folder: Path) -> None:
    with (folder / "huge.so").open("wb") as file:
        file.truncate(program_files.MAX_FOLDER_BYTES)  # a file of holes
    with pytest.raises(PermanentError, match=f"{program_files.MAX_FOLDER_BYTES} bytes"):
        read_program(NAME, folder)
