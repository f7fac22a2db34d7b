"""Table `components`: where the time of one inference goes, beside its latency."""

import functools
import itertools
import math
import re
import statistics
from collections.abc import Collection, Iterable, Sequence

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_values import MIN_REPEATS, with_one_cell
from fleetrank.analysis.stored.selection import Selection, fits_platform, known_workload, setting
from fleetrank.analysis.stored.side_tables import COMPONENT_TIMES, MODULE_MACS
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.errors import count_of, few_of
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, Runtime

# Shares of kernel time by module or operator, from stored profiles.

PLACE = ("model", "platform_key", "workload")
"""What one profile is of."""
_PROCESS = (*PLACE, "sweep_id", "cell_key", "repeat")
MODULE, OPERATOR = "module", "operator"
_LEVEL = r"[^.]+(?:\.\d+)?"
UNNAMED = "(no module named)"
"""Kernels of a file that names no modules."""


def valid_profiles(rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels of the newest sweep that profiled each model on each platform.

    Of each repeat the last attempt with status ok counts, as with latencies.

    Args:
        rows: of the side table `component_times`.
    """
    named = rows.with_columns(known_workload())
    ok = named.filter(pl.col("status") == "ok").filter(
        pl.col("attempt") == pl.col("attempt").max().over(_PROCESS)
    )
    newest = pl.col("sweep_id").sort_by("started_utc", "sweep_id").last().over(PLACE)
    return ok.filter(pl.col("sweep_id") == newest)


def component_of(split: str, depth: int) -> pl.Expr:
    """The component of a kernel: its operator, or the first `depth` parts of its module's path.

    A number belongs to the part before it: `blocks.3` is one part. A kernel of the model itself,
    such as a pooling without a module, is named after PyTorch's operation, or else its operator.
    """
    if split == OPERATOR:
        return pl.col("operator")
    path = pl.col("module").str.extract(rf"^({_LEVEL}(?:\.{_LEVEL}){{0,{depth - 1}}})")
    own = pl.format("(model) {}", pl.coalesce("source_operator", "operator"))
    return (
        pl.when(pl.col("module").is_null())
        .then(pl.lit(UNNAMED))
        .when(pl.col("module") == "")
        .then(own)
        .otherwise(path)
    )


def component_shares(kernels: pl.DataFrame, component: pl.Expr) -> pl.DataFrame:
    """Share of kernel time of each component, largest first inside a model and platform.

    Args:
        kernels: of `valid_profiles`.
        component: of a kernel, as `component_of` gives it.

    Returns:
        The columns of `PLACE`, then component; share: median over processes, divided by the sum of
        these medians, so that the shares of a model sum to 1; share_low, share_high: order-
        statistic interval of that median, null below 5 processes; n_processes; n_kernels, the
        kernels of one inference; output_bytes and weight_bytes, null where a kernel states none.
    """
    by_process = (
        kernels.with_columns(component.alias("component"))
        .group_by(*_PROCESS, "component")
        .agg(
            pl.col("kernel_ns").sum(),
            pl.col("calls").sum().alias("n_kernels"),
            *(
                pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)
                for name in ("output_bytes", "weight_bytes")
            ),
        )
    )
    whole = pl.col("kernel_ns").sum().over(_PROCESS)
    shares = by_process.with_columns((pl.col("kernel_ns") / whole).alias("share"))
    n_processes = pl.struct("cell_key", "repeat").n_unique().over(PLACE).alias("n_processes")
    found = (
        shares.with_columns(n_processes)
        .group_by(*PLACE, "component")
        .agg(
            pl.col("n_processes").first(),
            pl.col("share").sort().alias("shares"),
            *(pl.col(name).median() for name in ("n_kernels", "output_bytes", "weight_bytes")),
        )
    )
    return _with_interval(found).sort(
        *PLACE, "share", "component", descending=[False, False, False, True, False]
    )


def macs_shares(rows: pl.DataFrame, component: pl.Expr) -> pl.DataFrame:
    """Share of each component in the MACs of one inference, where they were counted.

    Args:
        rows: of the side table `module_macs`.
        component: of a module, as `component_of` gives it for modules.

    Returns:
        sweep_id, model, workload, component; macs_share: of the MACs of the whole model, so those
        of the components sum to 1.
    """
    place = ("sweep_id", "model", "workload")
    named = rows.with_columns(known_workload(), pl.lit(None, pl.String()).alias("operator"))
    total = pl.col("macs").sum().over(place)
    return (
        named.with_columns(
            component.alias("component"), (pl.col("macs") / total).alias("macs_share")
        )
        .group_by(*place, "component")
        .agg(pl.col("macs_share").sum())
    )


def _with_interval(found: pl.DataFrame) -> pl.DataFrame:
    """Medians and their intervals; a component that a process lacks took no time there."""
    rows = found.to_dicts()
    for row in rows:
        n = int(row["n_processes"])
        shares = sorted([0.0] * (n - len(row["shares"])) + list(row.pop("shares")))
        depth = interval_depth(n)
        row["share"] = statistics.median(shares)
        row["share_low"] = shares[depth] if n >= MIN_REPEATS else None
        row["share_high"] = shares[n - 1 - depth] if n >= MIN_REPEATS else None
    shown = pl.DataFrame(rows, schema_overrides=dict.fromkeys(_FIGURES, pl.Float64()))
    total = pl.col("share").sum().over(PLACE)
    return shown.with_columns((pl.col(name) / total).alias(name) for name in _FIGURES)


@functools.lru_cache(maxsize=1024)
def interval_depth(n: int) -> int:
    """How many of `n` sorted values can be cut from each end of an interval of their median.

    It covers 93.75 % or more: that of the range of 5. A share may be 0, and has no logarithm.
    Source: the sign test's interval; P(fewer than k of n lie below the median) is binomial.
    """
    ways = itertools.accumulate(math.comb(n, k) for k in range(n + 1))
    return sum(1 - 2 * one / 2**n >= _COVERAGE for one in [*ways][1 : n // 2 + 1])


_COVERAGE = 0.9375
_FIGURES = ("share", "share_low", "share_high")


def attributed_share(kernels: pl.DataFrame) -> pl.DataFrame:
    """Of each model and platform, which share of kernel time belongs to a module.

    Returns:
        The columns of `PLACE`; attributed: share of the time of kernels with a module; inserted:
        share of the time of kernels that the runtime added, counted for the module beside them.
    """
    total = pl.col("kernel_ns").sum()
    named = pl.col("kernel_ns").filter(pl.col("module").is_not_null()).sum()
    inserted = pl.col("kernel_ns").filter(pl.col("is_inserted")).sum()
    return kernels.group_by(PLACE).agg(
        (named / total).alias("attributed"), (inserted / total).alias("inserted")
    )


# Completes the names of modules that LiteRT shortens, with the modules of the network.
#
# LiteRT's exporter joins the names of the modules that are called. A list of modules is not
# called, so `blocks.4.feed` becomes `4.feed`.

_PLACE = ("sweep_id", "model", "workload")


def with_whole_names(kernels: pl.DataFrame, macs: pl.DataFrame) -> pl.DataFrame:
    """The kernels, with the modules of TFLite files named as in the network.

    Args:
        kernels: of `valid_profiles`.
        macs: of the side table `module_macs`, with known workloads. Without the modules of a
            network, the names of its kernels stay.
    """
    is_short = (pl.col("runtime") == Runtime.TFLITE.value) & pl.col("module").is_not_null()
    known = {place: _with_parents(rows["module"]) for place, rows in macs.group_by(*_PLACE)}
    short = kernels.filter(is_short).select(*_PLACE, "module").unique()
    whole = [
        {**row, "whole": whole_name(row["module"], paths)}
        for row in short.to_dicts()
        if (paths := known.get(tuple(row[name] for name in _PLACE)))
    ]
    if not whole:
        return kernels
    keys = [*_PLACE, "module"]
    named = kernels.join(pl.DataFrame(whole), on=keys, how="left", maintain_order="left")
    module = pl.when(is_short).then(pl.coalesce("whole", "module")).otherwise("module")
    return named.with_columns(module.alias("module")).drop("whole")


def _with_parents(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(
        ".".join(parts[:length])
        for parts in (path.split(".") for path in paths)
        for length in range(1, len(parts) + 1)
    )


def whole_name(name: str, known: Collection[str]) -> str:
    """The one module of the network that a name can be short for, or else the name.

    A module without MACs is not known; its parent gives the beginning of its name.

    >>> whole_name("4.norm", {"blocks", "blocks.4", "blocks.4.feed"})
    'blocks.4.norm'
    """
    if name in known or not name:
        return name
    parts = [
        rf"(?:[^.]+\.)?{part}" if part.isdigit() else re.escape(part) for part in name.split(".")
    ]
    form = re.compile(r"\.".join(parts))
    found = [path for path in known if form.fullmatch(path)]
    if len(found) == 1:
        return found[0]
    parent, dot, last = name.rpartition(".")
    return f"{whole_name(parent, known)}.{last}" if dot else name


_SPLIT = TABLES["components"].settings["split"]
_MOST_DEPTH = 20
_ENOUGH = 0.99
"""Attributed share below which a note says so; ONNX Runtime's kernels of the zoo give 1."""


def components_table(session: Session) -> Table:
    """One row for each model, platform and component, the largest share first.

    Raises:
        NoDataError: no selected model was profiled.
        AnalysisError: the depth is not a whole number from 1.
    """
    kernels, left_out = selected_kernels(session)
    shares = shares_of(session, kernels)
    latency = pl.col("latency_ns") / NS_PER_MS
    shown = shares.select(
        "model",
        "platform_key",
        "component",
        "share",
        "share_low",
        "share_high",
        "macs_share",
        (pl.col("share") * latency).alias("about_ms"),
        latency.alias("latency_ms"),
        pl.col("n_kernels").round().cast(pl.Int64),
        (pl.col("output_bytes") / BYTES_PER_MIB).alias("written_mib"),
        (pl.col("weight_bytes") / BYTES_PER_MIB).alias("weight_mib"),
        "n_processes",
    )
    return Table(
        title=f"Components by {_SPLIT.chosen(session.selection)}, {session.workload}",
        frame=shown,
        notes=(
            *session.cells.notes,
            *left_out,
            *_delegate_note(kernels),
            *_attributed_note(kernels, session),
        ),
        explanation=explained("components/shares"),
    )


def selected_kernels(session: Session) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The kernels of the newest profiles of the selected cells, with `latency_ns` of each cell.

    Also a note on models that have several cells on a platform, which are left out.

    Raises:
        NoDataError: no model was profiled.
    """
    _component_choice(session.selection)  # a wrong depth is an error before any reading
    rows = session.side(COMPONENT_TIMES)
    cells = session.cells.cells.select(*PLACE, "latency_ns", measured_cell="cell_key")
    kernels, left_out = with_one_cell(valid_profiles(rows).join(cells, on=PLACE, how="inner"))
    macs = session.side(MODULE_MACS).with_columns(known_workload())
    kernels = with_whole_names(kernels, macs)
    if kernels.is_empty():
        raise NoDataError(
            " ".join((f"no selected model has a profile{_failures(rows)}.", *left_out)).rstrip("."),
            "make one: `fleetrank run MODEL` with `profile=true`, or `profile: true` in a sweep",
        )
    return kernels, left_out


def _failures(rows: pl.DataFrame) -> str:
    failed = rows.filter(pl.col("status") != "ok").sort("started_utc")
    if failed.is_empty():
        return ""
    last = failed["error_message"][-1]
    return f"; {count_of(failed.height, 'profile')} failed, the last with: {last}"


def shares_of(session: Session, kernels: pl.DataFrame) -> pl.DataFrame:
    """`component_shares` as the settings ask for them, with `latency_ns` and `macs_share`."""
    split, depth = _component_choice(session.selection)
    component = component_of(split, depth)
    latencies = kernels.select(*PLACE, "sweep_id", "latency_ns").unique()
    shares = component_shares(kernels, component).join(
        latencies, on=PLACE, how="left", maintain_order="left"
    )
    if split != MODULE:
        return shares.with_columns(pl.lit(None, pl.Float64()).alias("macs_share"))
    macs = macs_shares(session.side(MODULE_MACS), component)
    keys = ["sweep_id", "model", "workload", "component"]
    return shares.join(macs, on=keys, how="left", maintain_order="left")


def _component_choice(selection: Selection) -> tuple[str, int]:
    """How components are named: by module, of so many parts of its path, or by operator."""
    split, depth = _SPLIT.chosen(selection), setting(selection, "depth", 1.0)
    if split != MODULE and "depth" in dict(selection.settings):
        raise AnalysisError(f"setting 'depth' has no effect with split={split}", "omit one of them")
    if depth != int(depth) or not 1 <= depth <= _MOST_DEPTH:
        raise AnalysisError(
            f"depth={depth:g} is out of range", f"use a whole number from 1 to {_MOST_DEPTH}"
        )
    return split, int(depth)


def _delegate_note(kernels: pl.DataFrame) -> tuple[str, ...]:
    """Which kernels are the whole part of a graph that a delegate took."""
    operators = kernels["operator"].unique().sort()
    whole = operators.filter(operators.str.to_lowercase().str.contains("delegate", literal=True))
    if whole.is_empty():
        return ()
    return (
        f"{', '.join(whole)}: one row for all nodes that the delegate took, because it does not "
        "report its own operators, or what these do not explain.",
    )


def _attributed_note(kernels: pl.DataFrame, session: Session) -> tuple[str, ...]:
    """What is not attributed to a module, if the table is about modules."""
    if _SPLIT.chosen(session.selection) != MODULE:
        return ()
    found = attributed_share(kernels)
    unnamed = found.filter(pl.col("attributed") == 0)
    partly = found.filter((pl.col("attributed") > 0) & (pl.col("attributed") < _ENOUGH))
    notes = []
    if not unnamed.is_empty():
        names = ", ".join(
            unnamed.select(pl.format("{} on {}", "model", "platform_key")).to_series()
        )
        notes.append(f"No module is known of {names}: see these by operator, `set split=operator`.")
    notes += [
        f"Only {100 * row['attributed']:.1f} % of the kernel time of {row['model']} on "
        f"{row['platform_key']} belongs to a known module."
        for row in partly.to_dicts()
    ]
    return tuple(notes)


# Part `ratios`: which component is slow on another device.

_PAIR = ("model", "component")
_RATIO_FIGURES = ("share", "share_low", "share_high", "latency_ns")
_NAMED = 4
"""Components of a model that the note names, and models on a platform."""


def component_ratios_table(session: Session) -> Table:
    """One row for each model, pair of platforms and component, the largest `relative` first.

    Raises:
        NoDataError: no model was profiled on two of the selected platforms.
        AnalysisError: the depth is not a whole number from 1.
    """
    kernels, left_out = selected_kernels(session)
    shares = shares_of(session, kernels)
    facts = session.cells.cells.select("platform_key", "device", "device_model", "tier")
    facts = facts.unique("platform_key")
    shares = shares.join(facts, on="platform_key", how="left", maintain_order="left")
    chosen = session.selection
    sources = _platforms(shares, fits_platform(chosen.source, chosen.source_tier))
    targets = _platforms(shares, fits_platform(chosen.target, chosen.target_tier))
    is_directed = (chosen.source, chosen.source_tier, chosen.target, chosen.target_tier) != (
        None, None, None, None,
    )  # fmt: skip
    pairs = [
        (source, target)
        for source, target in itertools.product(sources, targets)
        if source != target and (is_directed or source < target)
    ]
    frames = [_of_pair(shares, source, target) for source, target in pairs]
    found = [frame for frame in frames if not frame.is_empty()]
    if not found:
        raise _nothing_shared(shares, pairs)
    return Table(
        title=f"Components on two platforms, {session.workload}",
        frame=pl.concat(found).sort(
            "source", "target", "model", "relative",
            descending=[False, False, False, True], nulls_last=True,
        ),
        notes=(*session.cells.notes, *left_out, *_left_out_note(shares, pairs)),
        explanation=explained("components/ratios"),
    )  # fmt: skip


def _nothing_shared(shares: pl.DataFrame, pairs: Sequence[tuple[str, str]]) -> NoDataError:
    models = {
        platform: set(part["model"])
        for (platform,), part in shares.group_by("platform_key", maintain_order=True)
    }
    both = sorted({name for source, target in pairs for name in models[source] & models[target]})
    if not both:
        return NoDataError(
            "no model was profiled on two of the selected platforms",
            "profile it on a second device: `fleetrank run MODEL` with `profile=true` and another "
            "`device`",
        )
    return NoDataError(
        f"two platforms profiled {few_of(both, _NAMED)}, and no component of theirs has the same "
        "name",
        "compare `split=module` across runtimes, with a smaller `depth`; a runtime that gives "
        "operators alone has no modules",
    )


def _platforms(shares: pl.DataFrame, fits: pl.Expr) -> list[str]:
    return sorted(shares.filter(fits)["platform_key"].unique())


def _of_pair(shares: pl.DataFrame, source: str, target: str) -> pl.DataFrame:
    """The components that both platforms have; ratios of a share of 0 are null."""
    sides = [
        shares.filter(pl.col("platform_key") == platform).select(*_PAIR, *_RATIO_FIGURES)
        for platform in (source, target)
    ]
    both = sides[0].join(sides[1], on=_PAIR, how="inner", suffix="_target")
    model_ratio = _over("latency_ns_target", "latency_ns")
    return both.select(
        "model",
        pl.lit(source).alias("source"),
        pl.lit(target).alias("target"),
        "component",
        pl.col("share").alias("source_share"),
        pl.col("share_target").alias("target_share"),
        (_over("share_target", "share") * model_ratio).alias("ratio"),
        model_ratio.alias("model_ratio"),
        _over("share_target", "share").alias("relative"),
        _over("share_low_target", "share_high").alias("relative_low"),
        _over("share_high_target", "share_low").alias("relative_high"),
    )


def _over(above: str, below: str) -> pl.Expr:
    return pl.when(pl.col(below) > 0).then(pl.col(above) / pl.col(below))


def _left_out_note(shares: pl.DataFrame, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Which components only one platform of a pair has, the largest first."""
    sides = [side for pair in pairs for side in (pair, pair[::-1])]
    lacked = [_lacked(shares, mine, other) for mine, other in sides]
    if not lacked or (rows := pl.concat(lacked).unique()).is_empty():
        return ()
    found = (
        rows.sort("share", "component", descending=[True, False])
        .group_by("model", "platform_key")
        .agg(pl.col("component"), pl.col("share").sum())
        .sort("share", "model", "platform_key", descending=[True, False, False])
    )
    texts = [
        f"{few_of(row['component'], _NAMED)} of {row['model']} on {row['platform_key']} "
        f"({100 * row['share']:.2f} % of its time)"
        for row in found.head(_NAMED).to_dicts()
    ]
    more = found.height - len(texts)
    end = f"; and those of {more} more" if more else ""
    return (f"Left out, because only one of two platforms has them: {'; '.join(texts)}{end}.",)


def _lacked(shares: pl.DataFrame, mine: str, other: str) -> pl.DataFrame:
    """The components on one platform that the other lacks, of models that both have."""
    ours, theirs = (shares.filter(pl.col("platform_key") == one) for one in (mine, other))
    return (
        ours.join(theirs, on="model", how="semi")
        .join(theirs, on=_PAIR, how="anti")
        .select(*_PAIR, "platform_key", "share")
    )
