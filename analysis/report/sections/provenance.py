"""The sources of the page's figures: sweeps, devices, versions, commands."""

import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import html_table
from fleetrank.analysis.report.sections.sections import Section
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepTags
from fleetrank.analysis.tables.table import Table

_DEVICE_FACTS = (
    "device", "device_model", "tier", "origin", "cpu_model", "logical_cores", "memory_bytes",
    "os", "arch", "is_virtual_machine", "governor", "host",
)  # fmt: skip
_PLATFORM_FACTS = (
    "platform_key", "backend", "mode", "precision", "batch", "threads", "cpu_choice", "affinity",
    "runtime_version", "python_version", STATISTIC,
)  # fmt: skip
_COMMIT = r"\b([0-9a-f]{12})[0-9a-f]{28}\b"
"""Twelve digits identify a commit in every repository in use."""


def provenance_section(evidence: Evidence) -> Section:
    """Sweeps with their commands, commits and seeds; devices; platforms with their versions."""
    facts = (
        ("sweeps", Table(title="Sweeps", frame=_sweeps(evidence))),
        ("devices", Table(title="Devices", frame=_facts(evidence, "device", _DEVICE_FACTS))),
        (
            "platforms",
            Table(title="Platforms", frame=_facts(evidence, "platform_key", _PLATFORM_FACTS)),
        ),
        ("models", Table(title="Models", frame=_models(evidence.cells))),
        ("versions", Table(title="Versions of the libraries", frame=_versions(evidence))),
    )
    return Section(
        id="provenance",
        short="Provenance",
        title="Where the figures come from",
        lead=("Each figure comes from a sweep, a commit and a command listed here.",),
        tables=tuple(
            html_table(name, table, evidence.shown, is_open=number < 2)
            for number, (name, table) in enumerate(facts)
            if not table.frame.is_empty()
        ),
    )


def _sweeps(evidence: Evidence) -> pl.DataFrame:
    """Facts from the rows, and facts from the sweep's record if it exists."""
    used = pl.Series(list(dict.fromkeys(evidence.cells["sweep_id"])))
    spans = (
        evidence.selected.filter(pl.col("sweep_id").is_in(used.to_list()))
        .group_by("sweep_id")
        .agg(
            pl.col("started_utc").min().alias("started"),
            pl.col("finished_utc").max().alias("finished"),
            pl.len().alias("attempts"),
            *(_several(name) for name in ("seed", "fleetrank_version", "git_commit", "origin")),
        )
        .sort("started", descending=True, nulls_last=True)
        .collect()
    )
    by_id = {record.sweep_id: record for record in evidence.records}
    known = [by_id.get(sweep, SweepRecord(sweep_id=sweep)) for sweep in spans["sweep_id"]]
    extra: list[dict[str, object]] = [
        {"command_line": one.command_line, "state": one.state} for one in known
    ]
    short = pl.col("git_commit").str.replace_all(_COMMIT, "$1").alias("git_commit")
    columns = {"command_line": pl.String(), "state": pl.String()}
    if any(one != SweepTags() for one in evidence.tags.values()):
        columns |= {"tags": pl.String(), "note": pl.String()}
        for row, record in zip(extra, known, strict=True):
            given = evidence.tags.get(record.sweep_id, SweepTags())
            row |= {"tags": ", ".join(given.tags) or None, "note": given.note}
    return spans.with_columns(short).hstack(pl.DataFrame(extra, schema=columns))


def _facts(evidence: Evidence, key: str, names: tuple[str, ...]) -> pl.DataFrame:
    """One row per key that has a cell; a fact that changed lists all its values."""
    shown = evidence.cells[key].unique().to_list()
    facts = (
        evidence.selected.filter((pl.col("status") == "ok") & pl.col(key).is_in(shown))
        .group_by(key)
        .agg(*(_several(name) for name in names if name != key))
        .collect()
    )
    return facts.select(names).sort(key)


def _several(name: str) -> pl.Expr:
    values = pl.col(name).drop_nulls().unique().sort().cast(pl.String)
    return pl.when(values.len() > 0).then(values.str.join(" | ")).alias(name)


def _models(cells: pl.DataFrame) -> pl.DataFrame:
    columns = (
        "model", "family", "flops", "flops_method", "parameters", "input_size", "accuracy_top1",
        "accuracy_source", "weights_id",
    )  # fmt: skip
    return cells.select(columns).unique(maintain_order=True).sort("family", "model")


def _versions(evidence: Evidence) -> pl.DataFrame:
    rows = [
        {"sweep": record.sweep_id, "library": name, "version": version}
        for record in evidence.records
        for name, version in record.versions.items()
    ]
    return pl.DataFrame(rows)
