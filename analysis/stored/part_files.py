"""The Parquet files of a sweep; the name of a part is the number of its first row."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.part_seal import BrokenSealError, is_sealed

PARTS = f"part-{'[0-9]' * 8}.parquet"


def pending_path(results: Path, sweep_id: str) -> Path:
    """The marker that hides a sweep from every reader while its files are removed or copied."""
    return results / "sweeps" / f"{sweep_id}.pending"


def is_pending(results: Path, sweep_id: str) -> bool:
    """Whether a sweep is hidden."""
    return pending_path(results, sweep_id).exists()


def part_files(folder: Path) -> list[Path]:
    """The parts of one sweep in order, without parts whose rows are in an earlier part.

    During a merge of parts, and after a crash in it, the merged part and its source parts both
    exist. The checksum of each file is computed once per process.

    Raises:
        DamagedPartError: a file does not match its checksum.
    """
    kept: list[Path] = []
    for path in sorted(folder.glob(PARTS)):
        if not kept or first_row(path) >= first_row(kept[-1]) + _height(kept[-1]):
            require_whole(path)
            kept.append(path)
    return kept


def require_whole(path: Path) -> bool:
    """Checks a part against its checksum before it is read.

    Returns:
        Whether it has a checksum; older versions of fleetrank wrote none.

    Raises:
        DamagedPartError: the checksum does not match.
    """
    try:
        return is_sealed(path)
    except BrokenSealError as error:
        raise damage_error(path) from error
    except OSError:
        # The file was removed or is not readable: the code that reads it reports this.
        return False


def first_row(path: Path) -> int:
    """The number of a part's first row in its sweep."""
    return int(path.stem.removeprefix("part-"))


def _height(path: Path) -> int:
    """Rows of a part; 0 for a damaged part, whose error is reported when it is read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def damage_error(path: Path) -> DamagedPartError:
    """The error about a damaged part, with the command that restores its rows."""
    return DamagedPartError(
        f"{path} is damaged",
        "run `fleetrank results compact`: it keeps the damaged file under another name and "
        "writes its rows again from the journal",
    )


def damaged_part(paths: Iterable[Path]) -> Path | None:
    """The first part that cannot be read completely; reads all parts, so call it after an error."""
    return next((path for path in paths if _is_damaged(path)), None)


def damaged_part_of(results: Path) -> Path | None:
    """The first damaged part in all visible sweeps of a results folder."""
    paths = sorted((results / "measurements").glob(f"sweep_id=*/{PARTS}"))
    return damaged_part(
        path for path in paths if not is_pending(results, path.parent.name.partition("=")[2])
    )


def _is_damaged(path: Path) -> bool:
    try:
        is_sealed(path)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
    except (FileNotFoundError, MemoryError):
        # Too little memory does not mean a damaged file; Arrow's error has both types.
        return False
    except (BrokenSealError, pa.ArrowException, OSError):
        return True
    return False
