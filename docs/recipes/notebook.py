"""Latencies that a user noted by hand: `MODEL MILLISECONDS` in each line of one file."""

from pathlib import Path

from fleetrank.analysis.importers.release import Importer, Release, read_table

SOURCE = "notebook"


def _read(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    lines = [line.split() for line in read_table(path).decode().splitlines()]
    rows = tuple(
        {
            "status": "ok",
            "model": f"{SOURCE}:{model}",
            "device": "desk",
            "tier": "cpu",
            "runtime": "torch",
            "backend": "cpu",
            "mode": "eager",
            "precision": "fp32",
            "batch": 1,
            "options": "{}",
            "source": SOURCE,
            "source_ref": path.name,
            "sample_kind": "throughput_derived",
            "statistic": "mean",
            "latency_p50_ns": float(ms) * 1e6,
        }
        for model, ms in lines
    )
    return (Release(source=SOURCE, version="1", licence="my own", rows=rows),)


IMPORTER = Importer(read=_read)
