"""Detects changed results from the names, sizes and times of their files."""

import hashlib
import threading
from pathlib import Path
from time import monotonic

from fleetrank.analysis.stored.exclusions import FILE as EXCLUSIONS
from fleetrank.analysis.stored.part_files import PARTS

_LOOKED_AT = (
    f"measurements/*/{PARTS}", "sweeps/*.json", "sweeps/*.pending", "schema.json", EXCLUSIONS,
)  # fmt: skip
_FRESH_S = 0.5
"""How long a fingerprint is reused: a hundred sweeps need 200 system calls."""


class Fingerprint:
    """Fingerprint of one folder's Parquet parts, records and exclusions; reads no file."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._seen: tuple[float, str] | None = None
        self._lock = threading.Lock()

    def now(self) -> str:
        """Returns a text that changes when any file is added, removed or rewritten."""
        with self._lock:
            if self._seen is None or monotonic() - self._seen[0] > _FRESH_S:
                self._seen = (monotonic(), self._look())
            return self._seen[1]

    def _look(self) -> str:
        digest = hashlib.sha256()
        for pattern in _LOOKED_AT:
            for path in sorted(self._results.glob(pattern)):
                try:
                    found = path.stat()
                except FileNotFoundError:
                    continue  # merged with others just now
                digest.update(f"{path.name} {path.parent.name}".encode())
                digest.update(f" {found.st_size} {found.st_mtime_ns} {found.st_ino}\n".encode())
        return digest.hexdigest()[:16]
