"""The artifact cache: exported files named by their sha256, looked up by export request.

```
ROOT/files/SHA256.FORMAT   the exported files
ROOT/files/SHA256.data     weights of ONNX files that are too large for one file
ROOT/files/SHA256.npz      inputs and outputs by which a device checks a file with integers
ROOT/index/REQUEST.json    one per request: which file, cost, versions, verification
ROOT/staging/...           exports in progress
```
Threads and processes may share one folder: each file is written in staging and then renamed.
"""

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from fleetrank.foundation.codec import CodecError, Json, from_plain, to_plain
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.files import StorageError, move_file, replace_file, storage_error
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.small_file import file_sha256
from fleetrank.models.cards.card import Artifact, ExportRequest, Source, StagedExport
from fleetrank.models.cards.identity import card_sha256
from fleetrank.models.errors import ExportError
from fleetrank.models.number_types import read_types

_LOG = logging.getLogger(__name__)
_STRAY_AFTER = timedelta(days=1)
"""Longer than any export; an older file without an entry was left by a dead process."""


class ArtifactCache:
    """Exported files in one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files = self._root / "files"
        self._index = self._root / "index"
        self._staging = self._root / "staging"

    def peek(self, request: ExportRequest) -> Artifact | None:
        """As `find`, but changes nothing: no removal and no new time of use."""
        artifact = self._read_entry(self._entry_path(request))
        return artifact if artifact is not None and _is_sound(artifact) else None

    def has(self, request: ExportRequest) -> bool:
        """Whether there is an entry; its file is not looked at."""
        return self._entry_path(request).exists()

    def find(self, request: ExportRequest) -> Artifact | None:
        """The file for a request, with checked bytes; `None` when it has to be exported.

        A damaged entry is removed with a warning, so that it is exported again.
        """
        entry = self._entry_path(request)
        artifact = self._read_entry(entry)
        if artifact is None:
            return None
        if not _is_sound(artifact):
            _LOG.warning("%s in the artifact cache is damaged; exporting again", artifact.path)
            entry.unlink(missing_ok=True)
            for path, sha256 in _files_of(artifact).items():
                if not _has_content(path, sha256):
                    path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):  # a read-only cache works too
            os.utime(entry)
        return artifact

    def staging_dir(self, request: ExportRequest) -> Path:
        """A new folder for one export; `commit` removes it.

        Raises:
            ExportError: the disk is full or the folder cannot be written.
        """
        with self._disk_errors():
            self._staging.mkdir(parents=True, exist_ok=True)
            prefix = f"{request.card.name}-{request.format}-"
            return Path(tempfile.mkdtemp(prefix=prefix, dir=self._staging))

    def commit(
        self, request: ExportRequest, staged: StagedExport, compared: OutputComparison | None
    ) -> Artifact:
        """Moves a staged file into the cache; readers see the complete file or no file.

        `compared` is `None` without an original to compare the file with.

        Raises:
            CardError: the user's file cannot be read any more.
            ExportError: the disk is full, the folder cannot be written, or the files of the model
                changed since the request was made; no partial entry remains.
        """
        written = request.model.sized_from or request.card
        if card_sha256(written) != request.model.sha256:
            raise ExportError(
                f"the files of model {request.card.name} changed during the export",
                "do not change them while fleetrank runs, and run the command again",
            )
        with self._disk_errors():
            self._files.mkdir(parents=True, exist_ok=True)
            self._index.mkdir(parents=True, exist_ok=True)
            sha256, weights = file_sha256(staged.path), staged.weights_path
            types, check = read_types(staged.path, staged.format), staged.check_path
            sources = [one for one in (staged.path, weights, check) if one is not None]
            artifact = Artifact(
                path=str(self._files / f"{sha256}.{staged.format}"),
                sha256=sha256,
                size_bytes=sum(one.stat().st_size for one in sources if one != check),
                format=staged.format,
                cost=staged.cost,
                versions=staged.versions,
                max_relative_error=compared.max_relative_error if compared else None,
                snr_db=compared.snr_db if compared else None,
                top1_agreement=compared.top1_agreement if compared else None,
                is_trusted=request.card.source is not Source.FILE,
                weights_sha256=None if weights is None else weights.stem,
                border=None if types is None else types.border,
                border_scales=None if types is None else types.border_scales,
                check_sha256=None if check is None else file_sha256(check),
            )
            for source, target in zip(sources, _files_of(artifact), strict=True):
                move_file(source, target)
            self._write_entry(request, artifact)
        if staged.path.parent.parent == self._staging:
            shutil.rmtree(staged.path.parent, ignore_errors=True)
        return artifact

    def entries(self) -> list[Artifact]:
        """All artifacts, the least recently used first; damaged index entries are omitted."""
        found = [self._read_entry(path) for path in self._by_last_use()]
        return [artifact for artifact in found if artifact is not None]

    def prune(self, max_bytes: int) -> list[Path]:
        """Removes the least recently used files until the rest fits; returns the removed ones."""
        entries = [(path, self._read_entry(path)) for path in self._by_last_use()]
        files = {a.path: _files_of(a) for _, a in entries if a is not None}
        sizes = {path: _size_of(path) for each in files.values() for path in each}
        known, total_bytes = set(sizes), sum(sizes.values())
        last_use = {a.path: number for number, (_, a) in enumerate(entries) if a is not None}
        removed: list[Path] = []
        for name in sorted(last_use, key=last_use.__getitem__):
            if total_bytes <= max_bytes:
                break
            for path, artifact in entries:
                if artifact is not None and artifact.path == name:
                    path.unlink(missing_ok=True)
            # Two files can share their weights.
            unused = set(files.pop(name)).difference(*files.values())
            for path in sorted(unused):
                path.unlink(missing_ok=True)
                total_bytes -= sizes[path]
                removed.append(path)
        return removed + self._remove_strays(known)

    def _entry_path(self, request: ExportRequest) -> Path:
        return self._index / f"{request.key}.json"

    def _by_last_use(self) -> list[Path]:
        stamps: list[tuple[int, Path]] = []
        for path in self._index.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # another process pruned it
                stamps.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(stamps)]

    def _read_entry(self, path: Path) -> Artifact | None:
        try:
            found = from_plain(Artifact, cast("Json", read_json_object(path).get("artifact")))
            # Only names: a manipulated entry cannot point outside the folder.
            inside = str(self._files / Path(found.path).name)
            weights = found.weights_sha256 and Path(found.weights_sha256).name
            check = found.check_sha256 and Path(found.check_sha256).name
            return replace(found, path=inside, weights_sha256=weights, check_sha256=check)
        except MissingFileError:
            return None
        except (BadFileError, CodecError) as error:
            _LOG.warning("the entry %s of the artifact cache is damaged: %s", path, error)
            return None

    def _write_entry(self, request: ExportRequest, artifact: Artifact) -> None:
        # Only the name, so that a moved workspace keeps its cache.
        fields = to_plain(replace(artifact, path=Path(artifact.path).name))
        # The request is for users who inspect the folder; no code reads it.
        text = json.dumps({"artifact": fields, "request": asdict(request)}, indent=1)
        path = self._entry_path(request)
        replace_file(path, text.encode(), is_synced=True)

    def _remove_strays(self, known: set[Path]) -> list[Path]:
        """Files left by a process that died, old enough that no process still uses them."""
        files = [path for path in self._files.glob("*") if path not in known]
        strays = [path for path in files + list(self._staging.glob("*")) if _is_old(path)]
        for path in strays:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return strays

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise ExportError(error.message, error.remedy) from error
        except OSError as error:
            found = storage_error(Path(error.filename or self._root), error)
            raise ExportError(found.message, found.remedy) from error


def _files_of(artifact: Artifact) -> dict[Path, str]:
    """The file and what lies beside it, with the sha256 that each should have."""
    pairs = (
        (artifact.path, artifact.sha256),
        (artifact.weights_path, artifact.weights_sha256),
        (artifact.check_path, artifact.check_sha256),
    )
    return {Path(path): sha256 for path, sha256 in pairs if path and sha256}


def _is_sound(artifact: Artifact) -> bool:
    return all(_has_content(path, sha256) for path, sha256 in _files_of(artifact).items())


def _has_content(path: Path, sha256: str) -> bool:
    try:
        return file_sha256(path) == sha256
    except OSError:
        return False


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_old(path: Path) -> bool:
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return False
    return datetime.now(UTC) - changed > _STRAY_AFTER
