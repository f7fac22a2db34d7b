"""Whether the results have changed, told from names, sizes and times of their files."""

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
"""How long a look is good for: a hundred sweeps are 200 calls to the system."""


class Fingerprint:
    """Of the Parquet parts, sweep records and exclusions of one folder; reads no file."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._seen: tuple[float, str] | None = None
        self._lock = threading.Lock()

    def now(self) -> str:
        """Another text than before when any file is new, gone or rewritten."""
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
