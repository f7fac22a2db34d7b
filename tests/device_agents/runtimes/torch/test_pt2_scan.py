"""Untrusted `.pt2` files: what is loaded is the copy that was checked."""

import io
import pickle  # noqa: TID251 - makes hostile files; reads nothing
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_pt2 import (
    Hostile,
    hostile_constant,
    hostile_inputs,
    hostile_keyword,
    hostile_library,
    hostile_size,
    hostile_target,
    hostile_tree,
    hostile_weights,
    rewrite,
    two_directories,
    with_graph_named,
)

from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.runtimes import pt2_scan
from fleetrank.device_agents.runtimes.pt2_archive import ALIGNMENT
from fleetrank.device_agents.runtimes.pt2_scan import check_pickle, copy_checked
from fleetrank.device_agents.runtimes.torch_runner import TorchRunner
from fleetrank.foundation.vocabulary import ErrorKind, Runtime
from tests.device_agents.conftest import make_task

Make = Callable[[Path, Path, Path], Path]

HOSTILE = [
    with_graph_named("evil.JSON"), with_graph_named("evil.abcd"),
    with_graph_named("x_config.json"), hostile_tree, hostile_weights, hostile_constant,
    hostile_target, hostile_size, hostile_keyword, hostile_library,
    hostile_inputs,
]  # fmt: skip
REAL = [two_directories, hostile_size, hostile_keyword, hostile_weights, hostile_inputs]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`admit` forbids pickles in its process by a variable; later workers must not inherit it."""
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "")
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")


@pytest.mark.parametrize("make", HOSTILE)
def test_a_hostile_pt2_is_refused_and_executes_nothing(
    make: Make, pt2_file: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    file = make(marker, pt2_file, tmp_path / "hostile.pt2")
    assert file.read_bytes() != pt2_file.read_bytes()
    with pytest.raises(BadArtifactError, match="`trust=true`"):
        TorchRunner().admit(str(file))
    assert not marker.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("make", REAL)
def test_the_hostile_files_are_real_ones(make: Make, pt2_file: Path, tmp_path: Path) -> None:
    """Without this, the tests beside it would pass on files that harm no machine."""
    marker = tmp_path / "marker"
    file = make(marker, pt2_file, tmp_path / "hostile.pt2")
    # A busy machine takes long to load PyTorch, and a worker at its limit harms nothing.
    task = make_task(file, Runtime.TORCH, is_trusted=True, timeout_s=300.0)
    seen = measure_in_worker(task)
    assert marker.exists(), seen.failure


def test_a_file_with_two_directories_is_refused(pt2_file: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    file = two_directories(marker, pt2_file, tmp_path / "two.pt2")
    failure = measure_in_worker(make_task(file, Runtime.TORCH)).failure
    assert failure.kind is ErrorKind.BAD_ARTIFACT
    assert not marker.exists()


def test_a_copy_holds_what_was_checked_even_where_the_layout_is_not(
    pt2_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is the wall; the strict reading stands before it."""
    monkeypatch.setattr(pt2_scan, "check_layout", lambda _file: None)
    marker, copy = tmp_path / "marker", tmp_path / "copy.pt2"
    file = two_directories(marker, pt2_file, tmp_path / "two.pt2")
    copy_checked(str(file), copy)
    # No check of ours stands between this copy and PyTorch.
    assert pytest.importorskip("torch").export.load(copy).module() is not None
    assert not marker.exists()


def test_an_archive_in_the_archive_is_written_again_too(pt2_file: Path, tmp_path: Path) -> None:
    """The sample inputs are one, and PyTorch reads them by other rules than Python as well."""
    copy = tmp_path / "copy.pt2"
    inner = "data/sample_inputs/model.pt"

    def change(name: str, data: bytes) -> bytes:
        return data + b"PK" if name.endswith(inner) else data

    copy_checked(str(pt2_file), copy)
    with zipfile.ZipFile(pt2_file) as old, zipfile.ZipFile(copy) as new:
        theirs, ours = old.read(f"tiny/{inner}"), new.read(f"model/{inner}")
    with zipfile.ZipFile(io.BytesIO(theirs)) as old, zipfile.ZipFile(io.BytesIO(ours)) as new:
        assert [new.read(name) for name in new.namelist()] == [
            old.read(name) for name in old.namelist()
        ]
        assert {name.partition("/")[0] for name in new.namelist()} == {"archive"}
    file = rewrite(pt2_file, tmp_path / "m.pt2", change)
    with pytest.raises(BadArtifactError, match="not a readable"):
        copy_checked(str(file), tmp_path / "other.pt2")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_protocol_hides_a_call(protocol: int, tmp_path: Path) -> None:
    with pytest.raises(BadArtifactError):
        check_pickle(pickle.dumps(Hostile(tmp_path), protocol=protocol), "here")


@pytest.mark.parametrize(
    "data",
    [
        b"(itorch\nSize\n.",
        b"(ctorch\nSize\no.",
        b"\x8c\x05torch\x8c\x04Size\x93.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"\x84\x01\x00\x00\x00.",
        b"ctorch\nSizes\n.",
        b"cnot.torch\nSize\n.",
    ],
)
def test_a_name_of_tensors_is_allowed_as_a_whole_and_by_one_opcode(data: bytes) -> None:
    check_pickle(b"ctorch\nSize\n.", "here")
    with pytest.raises(BadArtifactError, match="would call"):
        check_pickle(data, "here")


def test_a_file_is_scanned_before_the_clock_of_loading_starts(
    pt2_file: Path, tmp_path: Path
) -> None:
    """A real worker, which refuses the file and executes nothing of it."""
    file = hostile_weights(tmp_path / "marker", pt2_file, tmp_path / "hostile.pt2")
    failure = measure_in_worker(make_task(file, Runtime.TORCH, primer_path=str(pt2_file))).failure
    assert (failure.kind, failure.stage) == (ErrorKind.BAD_ARTIFACT, "start")
    assert not (tmp_path / "marker").exists()


def test_the_runner_admits_a_copy_below_the_temp_folder(
    pt2_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runner = TorchRunner()
    copy = Path(runner.admit(str(pt2_file)))
    assert copy != pt2_file
    assert copy.stat().st_size > 0
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert copy.parent.parent == tmp_path


def test_a_compressed_member_is_refused(pt2_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "compressed.pt2"
    with zipfile.ZipFile(pt2_file) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(BadArtifactError, match=r"not a readable.*compressed"):
        copy_checked(str(file), tmp_path / "copy.pt2")


@pytest.mark.parametrize("size", [pt2_scan.MAX_NOTE_BYTES + 1, 3])
def test_a_note_that_is_no_note_is_refused(size: int, pt2_file: Path, tmp_path: Path) -> None:
    file = rewrite(
        pt2_file, tmp_path / "m.pt2", lambda n, d: b"x" * size if n.endswith("byteorder") else d
    )
    with pytest.raises(BadArtifactError, match="byteorder contains"):
        copy_checked(str(file), tmp_path / "copy.pt2")


@pytest.mark.parametrize("name", ["tiny/data/weights/weight_0", "tiny/Data/weights/weight_0"])
def test_two_members_of_one_name_are_refused_whatever_the_layout(
    name: str, pt2_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pt2_scan, "check_layout", lambda _file: None)
    file = tmp_path / "m.pt2"
    file.write_bytes(pt2_file.read_bytes())
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"1234")
    with pytest.raises(BadArtifactError, match="two members of one name"):
        copy_checked(str(file), tmp_path / "copy.pt2")


def test_files_beside_the_network_are_left_out(pt2_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pt2"
    file = rewrite(pt2_file, tmp_path / "m.pt2", lambda _n, d: d, {"extra/notes.py": b"import os"})
    copy_checked(str(file), copy)
    with zipfile.ZipFile(copy) as archive:
        assert not [name for name in archive.namelist() if "extra" in name]


def test_a_copy_computes_the_same_and_is_aligned_as_pytorch_aligns(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU(approximate="tanh"),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2),
    ).eval()  # fmt: skip
    images = torch.randn(2, 3, 16, 16)
    batch = ({0: torch.export.Dim("batch", min=1, max=64)},)
    file, copy = tmp_path / "m.pt2", tmp_path / "copy.pt2"
    torch.export.save(torch.export.export(network, (images,), dynamic_shapes=batch), file)
    copy_checked(str(file), copy)
    ours, theirs = (torch.export.load(path).module(check_guards=False) for path in (copy, file))
    more = torch.randn(5, 3, 16, 16)
    with torch.inference_mode():
        assert torch.equal(ours(more), theirs(more))
    assert ours.code == theirs.code
    reader = torch._C.PyTorchFileReader(str(copy))
    offsets = [reader.get_record_offset(name) for name in reader.get_all_records()]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    original = torch._C.PyTorchFileReader(io.BytesIO(file.read_bytes()))
    # All that the original holds, notes of format and versions too.
    assert set(reader.get_all_records()) == set(original.get_all_records())
    for name in ("byteorder", "archive_format", "archive_version", ".data/version"):
        assert reader.get_record(name) == original.get_record(name)
