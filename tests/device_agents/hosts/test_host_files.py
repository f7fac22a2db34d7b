"""Artifacts arrive whole or not at all, and never outside their folder."""

import hashlib
import os
from pathlib import Path

import pytest

from fleetrank.device_agents.contract.task import CanaryTask, Execution, MeasureTask
from fleetrank.device_agents.errors import DamagedFileError, PermanentError
from fleetrank.device_agents.hosts.files import HostFiles, file_names
from fleetrank.device_agents.hosts.messages import FilePart
from fleetrank.foundation.files import NoRoomError
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import Runtime


def name_of(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}.onnx"


def send(files: HostFiles, content: bytes, *, step: int = 4, **changes: object) -> None:
    starts = range(0, max(len(content), 1), step)
    for start in starts:
        fields: dict[str, object] = {
            "name": name_of(content),
            "delivery": "0a",
            "size_bytes": len(content),
            "content": content[start : start + step],
            "is_last": start == starts[-1],
        }
        files.receive(FilePart(**(fields | changes)))


def test_a_file_is_there_when_its_last_part_has_come(tmp_path: Path) -> None:
    files, content = HostFiles(tmp_path), b"0123456789"
    name = name_of(content)
    assert files.missing([name, name]) == [name]
    files.receive(
        FilePart(name=name, delivery="0a", size_bytes=10, content=content[:5], is_last=False)
    )
    assert files.missing([name]) == [name]
    files.receive(
        FilePart(name=name, delivery="0a", size_bytes=10, content=content[5:], is_last=True)
    )
    assert files.missing([name]) == []
    assert (tmp_path / name).read_bytes() == content


def test_what_arrives_damaged_is_thrown_away(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    with pytest.raises(DamagedFileError, match="damaged"):
        send(files, b"content", name=name_of(b"other"))
    assert list(tmp_path.iterdir()) == []


def test_what_a_broken_delivery_left_goes_when_another_arrives_an_hour_later(
    tmp_path: Path,
) -> None:
    files = HostFiles(tmp_path)
    for delivery in ("aa", "bb"):
        half = FilePart(
            name=name_of(b"x"), delivery=delivery, size_bytes=2, content=b"x", is_last=False
        )
        files.receive(half)
    (old,) = tmp_path.glob(".*.aa.tmp")
    os.utime(old, (0, 0))
    send(files, b"content")
    assert {path.suffixes[-2] for path in tmp_path.glob(".*.tmp")} == {".bb"}


@pytest.mark.parametrize(
    "name", ["../evil.onnx", "a.onnx", f"{'0' * 64}/x.onnx", f"{'0' * 64}.onnx/..", ""]
)
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    files = HostFiles(tmp_path / "files")
    with pytest.raises(PermanentError, match="not an artifact name"):
        send(files, b"content", name=name)
    with pytest.raises(PermanentError, match="not a delivery id"):
        send(files, b"content", delivery="../../x")
    assert [path.name for path in tmp_path.rglob("*")] == ["files"]


def test_half_a_file_of_a_dead_process_is_removed_by_the_next(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    files.receive(
        FilePart(name=name_of(b"x"), delivery="0a", size_bytes=10, content=b"", is_last=False)
    )
    assert len(list(tmp_path.iterdir())) == 1
    HostFiles(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_files_not_needed_for_longest_make_room(tmp_path: Path) -> None:
    files = HostFiles(tmp_path, limit_bytes=20)
    contents = [bytes([number]) * 10 for number in range(3)]
    for age, content in enumerate(contents[:2]):
        send(files, content)
        os.utime(tmp_path / name_of(content), (1000 + age, 1000 + age))
    send(files, contents[2])
    assert files.missing(map(name_of, contents)) == [name_of(contents[0])]


def test_a_file_in_use_is_never_removed(tmp_path: Path) -> None:
    files = HostFiles(tmp_path, limit_bytes=10)
    send(files, b"a" * 10)
    kept = name_of(b"a" * 10)
    part = FilePart(
        name=name_of(b"b" * 10), delivery="0a", size_bytes=10, content=b"b" * 10, is_last=True
    )
    files.receive(part, in_use={kept})
    assert files.missing([kept, part.name]) == []


def test_a_disk_without_room_refuses_a_file_before_its_first_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, mib = HostFiles(tmp_path), 1 << 20
    send(files, b"old")
    room = iter([3 * mib, 3 * mib, 3 * mib])
    monkeypatch.setattr(files, "_free_bytes", lambda: next(room))
    part = FilePart(
        name=name_of(b"x"), delivery="0a", size_bytes=5 * mib, content=b"x", is_last=False
    )
    with pytest.raises(NoRoomError, match=r"3 MiB .+ 5 MiB"):
        files.receive(part)
    assert list(tmp_path.iterdir()) == [], "what was not in use has made room"


def test_values_of_an_input_travel_if_they_are_named_by_their_content(tmp_path: Path) -> None:
    files, sent = HostFiles(tmp_path), name_of(b"values")
    send(files, b"values")
    values = [Values(path=f"/w/{name}", sha256="0") for name in (sent, "it's.npy")]
    inputs = tuple(
        ModelInput(name=str(number), shape=(1,), dtype="float32", values=one)
        for number, one in enumerate(values)
    )
    task = MeasureTask(
        task_id="t", artifact_path="", artifact_sha256="0",
        execution=Execution(runtime=Runtime.ONNX, backend="cpu", inputs=inputs),
    )  # fmt: skip
    assert file_names(task) == (sent,)
    there = [one.values.path for one in files.here(task).execution.inputs]
    assert there == [str(tmp_path / sent), "/w/it's.npy"]


def test_a_task_gets_the_paths_of_this_host(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    contents = [b"model", b"primer", b"canary"]
    for content in contents:
        send(files, content)
    model, primer, canary = (f"/workspace/artifacts/files/{name_of(c)}" for c in contents)
    task = MeasureTask(
        task_id="t",
        artifact_path=model,
        artifact_sha256="0",
        execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
        primer_path=primer,
        canary=CanaryTask(
            artifact_path=canary,
            artifact_sha256="0",
            affinity=None,
            reference_ns=1,
            spread=None,
            runs_before=True,
            runs_after=False,
        ),
    )
    assert file_names(task) == tuple(map(name_of, contents))
    here = files.here(task)
    assert here.canary is not None
    for path, content in zip(
        (here.artifact_path, here.primer_path, here.canary.artifact_path), contents, strict=True
    ):
        assert path is not None
        assert Path(path).read_bytes() == content
