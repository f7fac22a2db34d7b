"""What a command prints about the cells of one sweep: figures with their interval and verdict."""

from collections.abc import Mapping
from pathlib import Path

from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S
from fleetrank.orchestrator.cli.sweep_display import with_judgement


def cell_rows(results: Path, sweep_id: str) -> list[dict[str, object]]:
    """One row for each measured cell of a sweep, simulated ones too; empty if nothing worked."""
    from fleetrank.analysis.errors import NoDataError
    from fleetrank.analysis.stored.cell_values import cell_values
    from fleetrank.analysis.stored.load import load_measurements

    try:
        cells = cell_values(load_measurements(results, sweep=sweep_id, origins=ORIGINS))
    except NoDataError:
        return []
    verdicts = {
        (row["cell_key"], row["workload"]): {"verdict": row["verdict"], "why": row["why"]}
        for judged in with_judgement(results, sweep_id)
        for row in judged.iter_rows(named=True)
    }
    unknown: dict[str, object] = {"verdict": None, "why": None}
    return [
        _row(cell) | verdicts.get((cell["cell_key"], cell["workload"]), unknown)
        for cell in cells.iter_rows(named=True)
    ]


def left_out_notes(results: Path, sweep_id: str) -> tuple[str, ...]:
    """Which rows of a sweep no figure has, with the reason: excluded ones, or not accepted."""
    from fleetrank.analysis.errors import NoDataError
    from fleetrank.analysis.stored.exclusions import exclusion_notes
    from fleetrank.analysis.stored.load import load_measurements

    try:
        return exclusion_notes(load_measurements(results, sweep=sweep_id, origins=ORIGINS))
    except NoDataError:
        return ()


_SAME = (
    "model", "platform_key", "axes", "workload", "origin", "statistic", "interval_reason",
    "n_repeats", "memory_metric", "backend", "backend_nodes", "graph_nodes", "flags",
)  # fmt: skip


def _row(cell: Mapping[str, object]) -> dict[str, object]:
    same = {name: cell[name] for name in _SAME}
    return same | {
        "tokens_per_s": _tokens_per_s(cell),
        "latency_ms": _scaled(cell["latency_ns"], NS_PER_MS),
        "latency_low_ms": _scaled(cell["latency_low_ns"], NS_PER_MS),
        "latency_high_ms": _scaled(cell["latency_high_ns"], NS_PER_MS),
        "peak_memory_mib": _scaled(cell["peak_memory_bytes"], BYTES_PER_MIB),
    }


def _tokens_per_s(cell: Mapping[str, object]) -> float | None:
    tokens, latency_ns = cell["tokens_per_inference"], cell["latency_ns"]
    if not isinstance(tokens, int) or not isinstance(latency_ns, float) or latency_ns <= 0:
        return None
    return tokens / (latency_ns / NS_PER_S)


def _scaled(value: object, unit: float) -> float | None:
    return value / unit if isinstance(value, int | float) else None
