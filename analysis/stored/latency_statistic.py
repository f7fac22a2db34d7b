"""What the latency figure of a stored row is: a median, a mean or a minimum.

Rows that were stored before the column existed have it only where other facts leave no doubt.
"""

import polars as pl

STATISTIC = "statistic"
KNOWN_STATISTIC = """
    CASE
    WHEN statistic IS NOT NULL THEN statistic
    WHEN latency_p50_ns IS NULL THEN NULL
    WHEN sample_kind = 'throughput_derived' THEN 'mean'
    WHEN sample_kind = 'vendor' AND source = 'qai-hub' THEN 'minimum'
    WHEN origin = 'imported' THEN NULL
    WHEN sample_kind = 'per_inference' THEN 'median'
    WHEN sample_kind != 'tool_summary' THEN NULL
    WHEN runtime_settings LIKE '%"summary_statistic":"median"%' THEN 'median'
    WHEN runtime_settings LIKE '%"summary_statistic":"mean"%' THEN 'mean'
    WHEN runtime = 'onnx' THEN 'median'
    END
"""
"""SQL that Polars and DuckDB both read, so that tables and queries cannot differ.

A rate is the inverse of a mean. AI Hub reports the shortest time that it saw (its documentation,
"How it works", Inference). fleetrank takes the median of samples; `benchmark_model` wrote which
statistic it printed. What a user's own file holds is not known: null.
"""


def with_statistic(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Stored rows, with `statistic` filled in where it is certain."""
    return rows.with_columns(pl.sql_expr(KNOWN_STATISTIC).alias(STATISTIC))


def are_unlike(source: str | None, target: str | None) -> bool:
    """Whether two statistics are known to differ; one that is not stated does not differ."""
    return None not in (source, target) and source != target
