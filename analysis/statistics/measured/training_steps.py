"""Part `training`: what one step of training takes, beside an inference of the same batch."""

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_notes import (
    banners,
    notes_on_failures,
    notes_on_figures,
    notes_on_noise,
)
from fleetrank.analysis.stored.chosen_workload import named
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import Workload, WorkloadKind

_VALUE_BYTES = 4
"""A step of training is exported in fp32."""
_KEY = ("model", "platform_key")
_COLUMNS = (
    *_KEY, "workload", "optimizer", "step_p50_ms", "step_low_ms", "step_high_ms", "samples_per_s",
    "over_inference", "peak_memory_mib", "weights_mib", "gradients_mib", "optimizer_mib",
    "rest_mib", "steps_per_s", "gflops_per_s", "n_repeats", "flags",
)  # fmt: skip


def training_table(session: Session) -> Table:
    """One row for each model, platform and workload of training.

    Raises:
        NoDataError: no selected row is a step of training.
    """
    workloads = [
        one for one in map(Workload.parse, session.workloads) if one.kind is WorkloadKind.TRAIN
    ]
    if not workloads:
        raise NoDataError(
            "the selected rows have no step of training",
            "measure one: `workloads: [image, train@8]` with runtime torch in a sweep",
        )
    found = {one: of for one in workloads if (of := session.cells_of(str(one))) is not None}
    if not found:
        raise NoDataError(
            f"every attempt of {named([str(one) for one in workloads])} failed or is left out",
            "see the table `trust` with `part=dropped` and `workload`",
        )
    shown = pl.concat([_steps(session, of, one) for one, of in found.items()])
    every = pl.concat(found.values(), how="diagonal")
    attempts = pl.concat([session.of_workload(str(one)).attempts for one in workloads])
    known = [of for one in workloads if (of := session.unlimited.cells_of(str(one))) is not None]
    measured = pl.concat(known, how="diagonal")
    count = f"{count_of(shown.height, 'cell')}, {count_of(len(workloads), 'workload')}."
    return Table(
        title="Steps of training",
        frame=shown.select(_COLUMNS).sort(*_KEY, maintain_order=True),
        notes=(
            *banners(every),
            count,
            *session.dropped_notes(map(str, workloads)),
            *notes_on_figures(every),
            *notes_on_failures(attempts, measured),
            *notes_on_noise(every),
        ),
        explanation=explained("latency/training"),
    )


def _steps(session: Session, cells: pl.DataFrame, workload: Workload) -> pl.DataFrame:
    inference = _inference(session, workload)
    over = pl.col("step_p50_ms") / pl.col("inference_ms")
    steps = _figures(cells, workload).join(inference, on=_KEY, how="left")
    return steps.with_columns(over_inference=over)


def _figures(cells: pl.DataFrame, workload: Workload) -> pl.DataFrame:
    latency_s = pl.when(pl.col("latency_ns") > 0).then("latency_ns") / NS_PER_S
    weights = pl.col("parameters") * _VALUE_BYTES / BYTES_PER_MIB
    n_states = 0 if workload.optimizer is None else workload.optimizer.states
    peak = pl.col("peak_memory_bytes") / BYTES_PER_MIB
    return cells.select(
        *_KEY,
        pl.lit(str(workload)).alias("workload"),
        pl.lit(workload.optimizer, pl.String).alias("optimizer"),
        (pl.col("latency_ns") / NS_PER_MS).alias("step_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias("step_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias("step_high_ms"),
        (1.0 / latency_s).alias("steps_per_s"),
        (pl.col("batch") / latency_s).alias("samples_per_s"),
        (pl.col("flops") * pl.col("batch") / latency_s / 1e9).alias("gflops_per_s"),
        weights.alias("weights_mib"),
        weights.alias("gradients_mib"),
        (n_states * weights).alias("optimizer_mib"),
        peak.alias("peak_memory_mib"),
        (peak - (2 + n_states) * weights).alias("rest_mib"),
        "n_repeats", "flags",
    )  # fmt: skip


def _inference(session: Session, workload: Workload) -> pl.DataFrame:
    """Median milliseconds of one inference of as much, by model and platform."""
    kind = WorkloadKind.IMAGE if workload.length is None else WorkloadKind.PREFILL
    inference = str(Workload(kind=kind, length=workload.length))
    if (cells := session.cells_of(inference)) is None:
        return pl.DataFrame(schema=dict.fromkeys(_KEY, pl.String) | {"inference_ms": pl.Float64})
    # Of several weights or options it is not known which one the step is of.
    return cells.filter(pl.len().over(_KEY) == 1).select(
        *_KEY, (pl.col("latency_ns") / NS_PER_MS).alias("inference_ms")
    )
