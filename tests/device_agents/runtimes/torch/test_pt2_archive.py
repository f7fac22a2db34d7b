"""One archive and two readers, Python's and PyTorch's: what is admitted reads alike in both."""

import contextlib
import io
import os
import random
import struct
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from daily import daily
from hostile_pt2 import mutated, rewrite

from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.runtimes import pt2_scan
from fleetrank.device_agents.runtimes.pt2_archive import ALIGNMENT, add_member, check_layout
from fleetrank.device_agents.runtimes.pt2_program import checked_program, checked_table
from fleetrank.device_agents.runtimes.pt2_scan import copy_checked

MUTATIONS = 400
"""Of each of two archives, with strict reading and without; `make test` takes a quarter."""

SAMPLES = "data/sample_inputs/model.pt"
"""Written again as an archive: compared member by member."""

torch = pytest.importorskip("torch")


def by_pytorch(data: bytes) -> dict[str, bytes]:
    reader = torch._C.PyTorchFileReader(io.BytesIO(data))
    return {name: reader.get_record(name) for name in reader.get_all_records()}


def by_python(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def expected(members: dict[str, bytes]) -> dict[str, bytes]:
    """What the scan writes for members that it has read."""
    written = {}
    for name, data in members.items():
        if name == "models/model.json":
            written[name] = checked_program(data)
        elif name.endswith("_config.json"):
            written[name] = checked_table(data)
        elif not name.startswith("extra/") and name != SAMPLES:
            written[name] = data
    return written


def examine(data: bytes, folder: Path, *, is_strict: bool) -> bool:
    """Whether a mutation is admitted; its copy then reads alike in both readers."""
    source, copy = folder / "mutated.pt2", folder / "copy.pt2"
    source.write_bytes(data)
    copy.unlink(missing_ok=True)
    try:
        copy_checked(str(source), copy)
    except BadArtifactError:
        return False
    checked = expected(by_python(data))
    with zipfile.ZipFile(copy) as archive:
        assert len(archive.namelist()) == len(set(archive.namelist()))
    written = by_python(copy.read_bytes())
    samples = written.pop(SAMPLES, None)
    assert written == checked
    if samples:
        # The archive inside: only its notes, tensors and pickle, the same in both readers.
        assert by_pytorch(samples) == by_python(samples) == by_python(by_python(data)[SAMPLES])
    if not checked.keys() & {"version", ".data/version"}:
        with pytest.raises(RuntimeError, match="version"):
            by_pytorch(copy.read_bytes())
        return True
    assert by_pytorch(copy.read_bytes()) == by_python(copy.read_bytes())
    if is_strict:
        # Then even the file itself has one reading, or PyTorch takes it for none.
        with contextlib.suppress(RuntimeError):
            assert by_pytorch(data) == by_python(data)
    return True


def campaign(
    archives: list[bytes], seeds: range, folder: Path, *, is_strict: bool
) -> Counter[bool]:
    """How many mutations were admitted and how many refused."""
    found: Counter[bool] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        data = mutated(rng, archives[seed % len(archives)])
        found[examine(data, folder, is_strict=is_strict)] += 1
    return found


@pytest.fixture
def archives(pt2_file: Path, tmp_path: Path) -> list[bytes]:
    """As PyTorch writes one, and as zipfile does."""
    other = rewrite(pt2_file, tmp_path / "other.pt2", lambda _name, data: data)
    return [pt2_file.read_bytes(), other.read_bytes()]


@pytest.mark.parametrize("n", daily([MUTATIONS // 4, MUTATIONS], MUTATIONS // 4))
@pytest.mark.parametrize("is_strict", [True, False])
def test_what_is_admitted_reads_alike_in_both_readers(
    n: int, is_strict: bool, archives: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # the disk is not in question
    if not is_strict:
        monkeypatch.setattr(pt2_scan, "check_layout", lambda _file: None)
    found = campaign(archives, range(2 * n), tmp_path, is_strict=is_strict)
    assert found[True] > (2 if is_strict else 15), "too few were admitted to show anything"
    assert found[False] > n / 4


def test_both_writers_are_admitted(archives: list[bytes]) -> None:
    for data in archives:
        check_layout(io.BytesIO(data))


def doubled(data: bytes) -> bytes:
    """The first member is given twice in the directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.start_dir
    second = data.find(b"PK\x01\x02", start + 4)
    entry = data[start:second]
    end = bytearray(data[data.rfind(b"PK\x05\x06") :])
    for place, form, more in ((8, "<H", 1), (10, "<H", 1), (12, "<L", len(entry))):
        struct.pack_into(form, end, place, struct.unpack_from(form, end, place)[0] + more)
    return data[:start] + entry + data[start : data.rfind(b"PK\x05\x06")] + bytes(end)


def folders(data: bytes) -> bytes:
    """The first member of the directory has the attribute of a folder."""
    changed = bytearray(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        changed[archive.start_dir + 38] |= 0x10
    return bytes(changed)


CHANGES = {
    "bytes before": (lambda data: b"x" + data, "directory does not end"),
    "bytes after": (lambda data: data + b"x", "with an end record"),
    "a comment": (lambda data: data[:-2] + b"\x01\x00x", "with an end record"),
    "an end in a comment": (lambda data: data[:-2] + b"\x16\x00" + data[-22:], "does not end"),
    "a member twice": (doubled, "does not end where"),
    "an encrypted member": (lambda data: flags(data, 1), "compressed or encrypted"),
    "a folder": (folders, "claims to be a folder"),
    "another name in the header": (
        lambda data: data.replace(b"tiny/byteorder", b"tiny/bytEorder", 1), "contradicts"
    ),
    "other sizes in the header": (
        lambda data: data[:18] + b"\x01\x00\x00\x00" + data[22:], "other sizes"
    ),
    "a name that ends early": (
        lambda data: data.replace(b"archive_version", b"archive_format\x00"), "differently"
    ),
    "cut": (lambda data: data[: len(data) // 2], "with an end record"),
    "nothing": (lambda data: b"", "too short"),
}  # fmt: skip


def flags(data: bytes, value: int) -> bytes:
    """A flag in all headers."""
    changed = bytearray(data)
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = changed.find(sign)
        while place >= 0:
            changed[place + offset] |= value
            place = changed.find(sign, place + 4)
    return bytes(changed)


@pytest.mark.parametrize("what", CHANGES)
def test_an_archive_that_reads_in_two_ways_is_refused(what: str, archives: list[bytes]) -> None:
    change, reason = CHANGES[what]
    with pytest.raises(zipfile.BadZipFile, match=reason):
        check_layout(io.BytesIO(change(archives[1])))


def test_an_end_with_64_bits_elsewhere_is_refused(archives: list[bytes]) -> None:
    """PyTorch writes both ends; a reader may follow either."""
    data = bytearray(archives[0])
    place = data.rfind(b"PK\x06\x06")
    for offset, reason in ((24, "missing or invalid"), (40, "contradict"), (48, "contradict")):
        changed = bytearray(data)
        changed[place + offset] ^= 1
        with pytest.raises(zipfile.BadZipFile, match=reason):
            check_layout(io.BytesIO(changed))


def test_a_directory_beyond_all_networks_is_not_parsed() -> None:
    size = 1 << 30
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 9, 9, size, 0, 0)

    class Sparse(io.BytesIO):
        def seek(self, place: int, whence: int = 0) -> int:
            return super().seek(max(place - size, 0) if whence == 0 else place, whence) + size

    with pytest.raises(zipfile.BadZipFile, match="directory has 1073741824 bytes"):
        check_layout(Sparse(end))


@pytest.mark.parametrize("sizes", [(0,), (1, 63, 64, 65), (1000, 3, 70_000)])
def test_members_are_written_aligned_and_read_by_both(sizes: tuple[int, ...]) -> None:
    file = io.BytesIO()
    parts = {f"data/weights/weight_{n}": bytes([n]) * size for n, size in enumerate(sizes)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {**parts, "version": b"3\n"}.items():
            add_member(archive, f"model/{name}", io.BytesIO(data), len(data))
    reader = torch._C.PyTorchFileReader(io.BytesIO(file.getvalue()))
    for name, data in parts.items():
        assert reader.get_record(name) == data
        assert reader.get_record_offset(name) % ALIGNMENT == 0
    check_layout(file)
