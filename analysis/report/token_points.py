"""The points of the page's charts about prompts and steps."""

import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.points import BYTES_PER_MB, DIGITS, PLACE
from fleetrank.foundation.units import NS_PER_MS, NS_PER_S
from fleetrank.foundation.workload import Workload


def token_points(evidence: Evidence) -> Json | None:
    """The cells of every workload with tokens, as columns; `w`, `p` and `m` are numbers.

    `slots` is null for an encoder, which has no cache. `None` on a page about images.
    """
    cells = shown_token_cells(evidence)
    if cells is None:
        return None
    shown, workloads = evidence.shown, list(evidence.token_workloads)
    per_s = pl.col("tokens_per_inference") / (pl.col("latency_ns") / NS_PER_S)
    figures = cells.select(
        (pl.col("latency_ns") / NS_PER_MS).round_sig_figs(DIGITS).alias("ms"),
        pl.when(pl.col("latency_ns") > 0).then(per_s).round_sig_figs(DIGITS).alias("per_s"),
        (pl.col("peak_memory_bytes") / BYTES_PER_MB).round_sig_figs(DIGITS).alias("mb"),
    )
    return {
        "workloads": workloads,
        "first": workloads.index(evidence.workload) if evidence.workload in workloads else 0,
        "slots": [Workload.parse(one).context_tokens for one in workloads],
        "w": [workloads.index(one) for one in cells["workload"]],
        "p": [shown.platform_at[one] for one in cells["platform_key"]],
        "m": [shown.model_at[one] for one in cells["model"]],
        **figures.to_dict(as_series=False),
    }


def shown_token_cells(evidence: Evidence) -> pl.DataFrame | None:
    """The cells of workloads with tokens that the charts show, by model and platform."""
    if evidence.token_cells is None:
        return None
    shown = evidence.shown
    return evidence.token_cells.filter(
        pl.col("model").is_in(list(shown.models))
        & pl.col("platform_key").is_in(list(shown.platforms))
    ).unique([*PLACE, "workload"], keep="first", maintain_order=True)
