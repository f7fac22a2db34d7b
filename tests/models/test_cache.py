import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.vocabulary import Family, FlopsMethod, Format
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import (
    Artifact,
    Cost,
    ExportRequest,
    ModelCard,
    Source,
    StagedExport,
    Weights,
)
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.input_size import sized_for
from fleetrank.models.cards.zoo import load_zoo
from fleetrank.models.errors import ExportError

EQUAL = OutputComparison(max_relative_error=1e-6, is_equal=True)
REQUEST = ExportRequest(
    model=resolve(load_zoo()["resnet18"]), weights=Weights(), format=Format.ONNX
)
COST = Cost(
    macs=1000,
    parameters=10,
    method=FlopsMethod.COUNTED,
    by_module=(("stem", "conv2d", 900), ("", "linear", 100)),
)


def stage(cache: ArtifactCache, request: ExportRequest, content: bytes) -> StagedExport:
    path = cache.staging_dir(request) / "model.onnx"
    path.write_bytes(content)
    versions = (("onnx", "1.0"), ("torch", "2.0"))
    return StagedExport(path=path, format=request.format, cost=COST, versions=versions)


def put(cache: ArtifactCache, request: ExportRequest, content: bytes) -> Artifact:
    return cache.commit(request, stage(cache, request, content), EQUAL)


def test_empty_cache_finds_nothing(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "artifacts")
    assert cache.find(REQUEST) is None
    assert cache.entries() == []
    assert cache.prune(0) == []


def test_committed_artifact_is_found_with_everything_known_about_it(tmp_path: Path) -> None:
    put(ArtifactCache(tmp_path), REQUEST, b"network")
    found = ArtifactCache(tmp_path).find(REQUEST)
    assert found is not None
    assert Path(found.path).read_bytes() == b"network"
    assert Path(found.path).stem == found.sha256
    assert (found.cost, found.max_relative_error, found.size_bytes) == (COST, 1e-6, 7)
    assert found.versions == (("onnx", "1.0"), ("torch", "2.0"))
    assert found.is_trusted


def test_nothing_is_left_of_the_staging_folder(tmp_path: Path) -> None:
    staged = stage(ArtifactCache(tmp_path), REQUEST, b"network")
    ArtifactCache(tmp_path).commit(REQUEST, staged, None)
    assert not staged.path.parent.exists()


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, format=Format.TFLITE),
        replace(REQUEST, batch=8),
        replace(REQUEST, precision="fp16"),
        replace(REQUEST, weights=Weights(seed=1)),
        replace(REQUEST, model=resolve(load_zoo()["resnet50"])),
    ],
)
def test_other_request_is_another_entry(tmp_path: Path, other: ExportRequest) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache, REQUEST, b"network")
    assert cache.find(other) is None


def test_file_changed_during_its_export_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(b"1234")
    card = ModelCard(name="mine", family=Family.HYBRID, source=Source.FILE, entry=str(path))
    request = ExportRequest(model=resolve(card), weights=Weights(), format=Format.ONNX)
    cache = ArtifactCache(tmp_path / "artifacts")
    staged = stage(cache, request, b"network")
    path.write_bytes(b"4321")
    with pytest.raises(ExportError, match="changed during the export"):
        cache.commit(request, staged, None)
    assert cache.find(request) is None
    assert cache.find(replace(request, model=resolve(card))) is None


def test_damaged_file_is_removed_so_that_it_is_exported_again(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    path = Path(put(cache, REQUEST, b"network").path)
    path.write_bytes(b"netw0rk")
    assert cache.find(REQUEST) is None
    assert not path.exists()
    put(cache, REQUEST, b"network")
    assert cache.find(REQUEST) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"artifact": {"file": 3}}'])
def test_damaged_index_entry_is_exported_again(tmp_path: Path, text: str) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache, REQUEST, b"network")
    next(tmp_path.glob("index/*.json")).write_text(text)
    assert cache.find(REQUEST) is None
    assert cache.entries() == []


def test_index_entry_cannot_name_a_file_outside_the_cache(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    put(cache, REQUEST, b"network")
    outside = tmp_path / "outside.onnx"
    outside.write_bytes(b"network")
    entry = next(tmp_path.glob("cache/index/*.json"))
    fields = json.loads(entry.read_text())
    fields["artifact"]["path"] = f"../../{outside.name}"
    entry.write_text(json.dumps(fields))
    assert cache.find(REQUEST) is None
    assert outside.exists()


def test_moved_cache_keeps_its_entries(tmp_path: Path) -> None:
    put(ArtifactCache(tmp_path / "old"), REQUEST, b"network")
    (tmp_path / "old").rename(tmp_path / "new")
    found = ArtifactCache(tmp_path / "new").find(REQUEST)
    assert found is not None
    assert Path(found.path).is_file()


def test_full_disk_says_so_and_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArtifactCache(tmp_path)
    staged = stage(cache, REQUEST, b"network")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExportError) as caught:
        cache.commit(REQUEST, staged, None)
    assert "is full" in caught.value.message
    assert "models export" in caught.value.remedy
    monkeypatch.undo()
    assert cache.find(REQUEST) is None
    assert list((tmp_path / "files").iterdir()) == []


def test_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("in the way")
    with pytest.raises(ExportError, match="cannot be written"):
        ArtifactCache(tmp_path / "artifacts").staging_dir(REQUEST)


def test_prune_removes_the_least_recently_used_until_the_rest_fits(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    requests = [replace(REQUEST, weights=Weights(seed=seed)) for seed in range(3)]
    artifacts = [put(cache, request, bytes([seed]) * 10) for seed, request in enumerate(requests)]
    for age, entry in enumerate(tmp_path.glob("index/*.json")):
        os.utime(entry, (age, age))
    assert cache.find(requests[0]) is not None  # now the most recently used
    removed = cache.prune(10)
    assert set(removed) == {Path(artifact.path) for artifact in artifacts[1:]}
    assert [a.sha256 for a in cache.entries()] == [artifacts[0].sha256]


def test_file_shared_by_two_requests_counts_once(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    for seed in (0, 1):
        put(cache, replace(REQUEST, weights=Weights(seed=seed)), b"same bytes")
    assert cache.prune(10) == []
    assert len(cache.prune(9)) == 1
    assert cache.entries() == []


def test_prune_clears_what_a_killed_process_left_long_ago(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache, REQUEST, b"network")
    old = tmp_path / "files" / "half.onnx"
    fresh = cache.staging_dir(REQUEST)
    stale = cache.staging_dir(REQUEST)
    old.write_bytes(b"ha")
    for path in (old, stale):
        os.utime(path, (0, 0))
    assert set(cache.prune(1000)) == {old, stale}
    assert fresh.exists()
    assert cache.find(REQUEST) is not None


def test_a_model_at_another_size_of_images_is_stored_beside_its_own(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    model, axes = sized_for(REQUEST.model, (("input_size", 160),))
    smaller = replace(REQUEST, model=model, axes=axes)
    put(cache, REQUEST, b"network")
    assert cache.find(smaller) is None
    put(cache, smaller, b"smaller")
    assert cache.find(smaller) is not None
    found = cache.find(REQUEST)
    assert found is not None
    assert Path(found.path).read_bytes() == b"network"


def test_what_devices_check_is_kept_beside_the_file(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    staged = stage(cache, REQUEST, b"network")
    check = staged.path.with_name("check.npz")
    check.write_bytes(b"cases")
    artifact = cache.commit(REQUEST, replace(staged, check_path=check), EQUAL)
    assert (artifact.size_bytes, cache.find(REQUEST)) == (7, artifact)
    assert artifact.check_path is not None
    Path(artifact.check_path).write_bytes(b"others")
    assert cache.find(REQUEST) is None
