"""Table `end-to-end`: what a whole answer costs.

A whole answer is a prompt of P tokens, then N - 1 steps.
"""

from collections.abc import Iterable

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import named
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.workload import LARGEST_LENGTH, Workload, WorkloadKind

PROMPT, GENERATED = 128, 32
"""Tokens of the prompt and of the answer, unless the user gives others."""
_PLACE = ("model", "platform_key")
_PARTS = (WorkloadKind.PREFILL, WorkloadKind.DECODE, WorkloadKind.GENERATE)
_REASON = pl.concat_str(
    [
        pl.when(pl.col(name).is_null()).then(pl.lit(f"no {what} with room was measured"))
        for name, what in (("latency_ns", "prompt"), ("latency_ns_step", "step"))
    ],
    separator="; ",
    ignore_nulls=True,
).replace("", None)


def end_to_end_table(session: Session) -> Table:
    """Time to first token, time of each further one, and their sum, for each model and platform.

    Raises:
        AnalysisError: a number of tokens is not a whole number from 1.
        NoDataError: no prompt, or no cache, with room for the tokens was measured.
    """
    prompt = _tokens(session, "prompt", PROMPT)
    generated = _tokens(session, "generated", GENERATED)
    known = [Workload.parse(one) for one in session.workloads]
    prefill = _smallest(session, known, WorkloadKind.PREFILL, prompt)
    decode = _smallest(session, known, WorkloadKind.DECODE, prompt + generated)
    parts = prefill.join(
        decode.drop("origin", "device"), on=_PLACE, how="full", coalesce=True, suffix="_step"
    )
    whole = Workload(kind=WorkloadKind.GENERATE, length=prompt, generated=generated)
    joined = parts.join(_whole(session, whole), on=_PLACE, how="left").sort(_PLACE)
    shown = joined.select(*_PLACE, *_figures(generated), _REASON.alias("reason"))
    n_known = shown.height - shown["end_to_end_ms"].null_count()
    return Table(
        title=f"End to end: {prompt} + {generated} tokens",
        frame=shown,
        notes=(
            *banners(pl.concat([prefill, decode])),
            f"{n_known} of {shown.height} models on platforms have both parts.",
            *session.dropped_notes(str(one) for one in known if one.kind in _PARTS),
        ),
        explanation=explained("tokens/request"),
    )


def _tokens(session: Session, name: str, usual: int) -> int:
    value = setting(session.selection, name, float(usual))
    if value != int(value) or not 1 <= value <= LARGEST_LENGTH:
        raise AnalysisError(
            f"{name}={value:g} is not a number of tokens",
            f"give a whole number from 1 to {LARGEST_LENGTH:,}, such as `set {name}={usual}`",
        )
    return int(value)


def _smallest(
    session: Session, known: Iterable[Workload], kind: WorkloadKind, least: int
) -> pl.DataFrame:
    """The cells of a kind; of each place the shortest workload with room for so many tokens."""
    fits = [one for one in known if one.kind is kind and (one.length or 0) >= least]
    shortest_first = sorted(fits, key=lambda one: one.length or 0)
    found = [cells for one in shortest_first if (cells := _cells(session, one)) is not None]
    if not found:
        have = named([str(one) for one in known]) or "none"
        failed = named([str(one) for one in shortest_first])
        raise NoDataError(
            f"no measured {kind} has room for {least:,} tokens; the results have {have}"
            + (f", and no valid attempt of {failed}" if failed else ""),
            f"measure {kind}@{least}, or ask for fewer tokens with `set prompt={PROMPT}` and "
            f"`set generated={GENERATED}`",
        )
    return pl.concat(found).unique(_PLACE, keep="first", maintain_order=True)


def _cells(session: Session, workload: Workload) -> pl.DataFrame | None:
    if (cells := session.cells_of(str(workload))) is None:
        return None
    unique = cells.filter(pl.len().over(_PLACE) == 1)
    return unique.select(
        *_PLACE,
        "workload",
        "origin",
        "device",
        "latency_ns",
        "latency_low_ns",
        "latency_high_ns",
        "ttft_ns",
    )


def _whole(session: Session, wanted: Workload) -> pl.DataFrame:
    """`generate_ns` of cells that measured the whole answer; empty without any."""
    steps = (wanted.generated or 1) - 1
    total = (pl.col("ttft_ns") + steps * pl.col("latency_ns")).alias("generate_ns")
    if (cells := _cells(session, wanted)) is None:
        return pl.DataFrame(schema=dict.fromkeys(_PLACE, pl.String) | {"generate_ns": pl.Float64})
    return cells.select(*_PLACE, total)


def _figures(generated: int) -> list[pl.Expr]:
    steps = generated - 1
    sums = {
        "end_to_end_ms": "latency_ns",
        "end_to_end_low_ms": "latency_low_ns",
        "end_to_end_high_ms": "latency_high_ns",
    }
    total = pl.col("latency_ns") + steps * pl.col("latency_ns_step")
    return [
        pl.col("workload").alias("prompt_workload"),
        pl.col("workload_step").alias("step_workload"),
        (pl.col("latency_ns") / NS_PER_MS).alias("ttft_ms"),
        (pl.col("latency_ns_step") / NS_PER_MS).alias("itl_ms"),
        *(
            ((pl.col(name) + steps * pl.col(f"{name}_step")) / NS_PER_MS).alias(shown)
            for shown, name in sums.items()
        ),
        (pl.col("generate_ns") / NS_PER_MS).alias("generate_ms"),
        pl.when(pl.col("generate_ns") > 0).then(total / pl.col("generate_ns"))
        .alias("parts_to_generate"),
    ]  # fmt: skip
