"""What a command prints about the cells of one sweep: figures with their interval and flags."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.inputs.workload import IMAGE
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S


def cell_rows(results: Path, sweep_id: str) -> list[dict[str, object]]:
    """One row for each measured cell of a sweep, simulated ones too; empty if nothing worked."""
    from fleetrank.analysis.errors import NoDataError
    from fleetrank.analysis.stored.cells_table import cell_values
    from fleetrank.analysis.stored.load import load_measurements

    try:
        cells = cell_values(load_measurements(results, sweep=sweep_id, origins=ORIGINS))
    except NoDataError:
        return []
    return [_row(cell) for cell in cells.iter_rows(named=True)]


def _row(cell: Mapping[str, object]) -> dict[str, object]:
    nodes, of_nodes = cell["backend_nodes"], cell["graph_nodes"]
    return {
        "model": cell["model"],
        "platform_key": cell["platform_key"],
        "axes": cell["axes"],
        "workload": cell["workload"],
        "tokens_per_s": _tokens_per_s(cell),
        "origin": cell["origin"],
        "statistic": cell["statistic"],
        "latency_ms": _scaled(cell["latency_ns"], NS_PER_MS),
        "latency_low_ms": _scaled(cell["latency_low_ns"], NS_PER_MS),
        "latency_high_ms": _scaled(cell["latency_high_ns"], NS_PER_MS),
        "interval_coverage": cell["interval_coverage"],
        "interval_reason": cell["interval_reason"],
        "n_repeats": cell["n_repeats"],
        "peak_memory_mib": _scaled(cell["peak_memory_bytes"], BYTES_PER_MIB),
        "memory_metric": cell["memory_metric"],
        "backend": cell["backend"],
        "backend_nodes": nodes,
        "graph_nodes": of_nodes,
        "flags": cell["flags"],
    }


def _tokens_per_s(cell: Mapping[str, object]) -> float | None:
    tokens, latency_ns = cell["tokens_per_inference"], cell["latency_ns"]
    if not isinstance(tokens, int) or not isinstance(latency_ns, float) or latency_ns <= 0:
        return None
    return tokens / (latency_ns / NS_PER_S)


def _scaled(value: object, unit: float) -> float | None:
    return value / unit if isinstance(value, int | float) else None


def cell_lines(row: Mapping[str, object]) -> Iterator[str]:
    """The lines about one cell."""
    origin = "" if row["origin"] == "measured" else f" ({row['origin']})"
    yield f"platform   {row['platform_key']}{origin}"
    if row["workload"] != str(IMAGE):
        yield f"workload   {row['workload']}"
    yield f"latency    {_latency(row)}"
    if row["tokens_per_s"] is not None:
        yield f"tokens     {value_text(row['tokens_per_s'])} per second"
    memory = value_text(row["peak_memory_mib"])
    yield f"memory     {memory} MiB at its peak ({value_text(row['memory_metric'])})"
    yield f"placement  {_placement(row)}"
    yield f"flags      {value_text(row['flags']) if row['flags'] else 'none'}"


def _latency(row: Mapping[str, object]) -> str:
    statistic = "statistic unknown" if row["statistic"] is None else str(row["statistic"])
    parts = [f"{value_text(row['latency_ms'])} ms ({statistic})"]
    coverage = row["interval_coverage"]
    if isinstance(coverage, float):
        low, high = value_text(row["latency_low_ms"]), value_text(row["latency_high_ms"])
        parts.append(f"interval {low} to {high} ms, coverage {100 * coverage:.0f} %")
        parts.append(f"{row['n_repeats']} repeats")
    else:
        parts.append(str(row["interval_reason"]))
    return ", ".join(parts)


def _placement(row: Mapping[str, object]) -> str:
    if row["backend_nodes"] is None or row["graph_nodes"] is None:
        return f"not stated by the runtime; asked for backend {row['backend']}"
    return f"{row['backend_nodes']} of {row['graph_nodes']} nodes on {row['backend']}"
