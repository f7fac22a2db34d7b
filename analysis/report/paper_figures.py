"""The figures of a paper by name: each is a function from a session to points and a caption.

A figure uses the same tables and Vega-Lite files as the page. To add one, write a function
`(session, width) -> Figure` and name it in `FIGURES`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    products,
    spearman_matrix,
)
from fleetrank.analysis.chart_points import Fate, frontier_pairs
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.figures import FAMILY_MARKS, chosen_platforms
from fleetrank.analysis.labels import labels_of, published_names
from fleetrank.analysis.panel.agreement import Agreement
from fleetrank.analysis.panel.panel import FRM, LATENCY
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.charts import ONE_COLUMN_PX, Figure, Spec, drawing, stacked
from fleetrank.analysis.statistics.pairs.pair_orders import LISTED, Order, PairOrder
from fleetrank.analysis.statistics.pairs.pairs import faster, main_pair, pair_table
from fleetrank.analysis.statistics.ranks.disagreement import MIN_SHIFT
from fleetrank.analysis.statistics.reading.contexts import ContextReading, context_readings
from fleetrank.analysis.statistics.reading.strategies import ReadingStrategy
from fleetrank.analysis.statistics.transfer.transfer import transfer
from fleetrank.analysis.stored.columns import NO_FAMILY
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.tables.table import frame_of
from fleetrank.analysis.tables.tables import session_table
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of, did_you_mean

_Rows = list[dict[str, Any]]
_ROW_PX = 16
_MOST_ROWS = 40
_DRAWS = 2000
_AHEAD, _BEHIND = ("#0072B2", "circle"), ("#D55E00", "triangle-up")
_ORDERS = {
    Order.HERE: ("#000000", "diamond"), Order.KEPT: _AHEAD, Order.A_FIRST: _AHEAD,
    Order.REVERSED: _BEHIND, Order.B_FIRST: _BEHIND,
}  # fmt: skip
_OTHER = ("equal or undecided", "#8a919c", "square")
_FATES = {
    Fate.HIT: ("hit", "#009E73", "circle"), Fate.MISS: ("miss", "#D55E00", "diamond"),
    Fate.FALSE: ("false alarm", "#CC79A7", "cross"),
    Fate.NEITHER: ("on neither", "#8a919c", "circle"),
}  # fmt: skip
_LARGEST_RATIO = 8.0


def answer(session: Session, width: int) -> Figure:
    """Two models on every platform: of a selection of two models these, else the main pair."""
    asked = session.selection.models
    every = session.asked(replace(session.selection, model=None))
    found = faster(every, *asked) if len(asked) == 2 else main_pair(session)
    if found is None:
        raise NoDataError("no two models are apart here", "select two: `model=A` and `model=B`")
    table, margin = pair_table(found), math.log1p(found.margin)
    rows = [one for one in (found.here, *found.targets) if one.ratio is not None]
    order = {name: at for at, name in enumerate(LISTED)}
    rows = sorted(rows, key=lambda one: (order.get(one.order, len(order)), one.ratio))[:_MOST_ROWS]
    ends = [end for one in rows for end in (one.ratio, one.low, one.high) if end]
    reach = min(max(1.25, *(max(end, 1 / end) for end in ends)), _LARGEST_RATIO) * 1.05
    a, b = found.here.model_a, found.here.model_b
    words = {Order.A_FIRST: f"{a} faster", Order.B_FIRST: f"{b} faster"}
    looks = {one: (words.get(one, one.value), *look) for one, look in _ORDERS.items()}
    kinds = [*dict.fromkeys((*looks.values(), _OTHER))]
    points: _Rows = [
        {
            "label": one.label, "value": one.ratio, "low": one.low, "high": one.high,
            "from": math.exp(-margin), "to": math.exp(margin),
            "kind": looks.get(one.order, _OTHER)[0],
        }
        for one in rows
    ]  # fmt: skip
    spec = _intervals(
        width, points, kinds, title=[a, f"times as fast as {b}"], scale="log",
        domain=[1 / reach, reach], ticks=_log_ticks(1 / reach, reach),
    )  # fmt: skip
    n_dropped = table.frame.height - len(rows)
    return Figure(
        name="answer",
        spec=spec,
        data=frame_of(PairOrder, rows),
        caption=_caption(
            f"{a} against {b} on {count_of(len(rows), 'platform')}.",
            "A point is the ratio of their figures, a line its 95 % interval over processes; the "
            f"grey band is a difference of up to {100 * found.margin:.0f} %.",
            f"Left out: {count_of(n_dropped, 'row')} without a measured ratio."
            if n_dropped
            else "",
            *table.notes,
        ),
    )


def _intervals(width: int, points: _Rows, kinds: Sequence[tuple[str, str, str]],
               **values: object) -> Spec:  # fmt: skip
    """Rows of a value with its interval, over the grey band of each."""
    present = {one["kind"] for one in points}
    shown = [one for one in kinds if one[0] in present]
    return drawing(
        "intervals", width, _ROW_PX * len(points) + 75 + 12 * (len(shown) > 3), {"rows": points},
        {
            "labels": [one["label"] for one in points], "room": 0.45 * width,
            "kinds": [one[0] for one in shown], "colours": [one[1] for one in shown],
            "shapes": [one[2] for one in shown], "legend": _legend(width),
            **values,
        },
    )  # fmt: skip


def _caption(*parts: str) -> str:
    return "\n".join(dict.fromkeys(filter(None, parts))) + "\n"


def _log_ticks(low: float, high: float) -> list[float]:
    """Round values between two limits above 0: powers of ten, or 1-3 or 1-2-5 if few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [float(f"{step * 10.0**power:.6g}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            return ticks
    step = 10.0 ** math.floor(math.log10(high - low))
    return [at * step for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _pairs(session: Session, measure: str) -> list[Agreement]:
    """The compared pairs of platforms that have a rho."""
    found = [one for one in transfer(session).pairs if one.measure == measure]
    known = [one for one in found if one.rho is not None and one.target is not None]
    if not known:
        raise NoDataError(
            f"no two platforms share {MIN_MODELS} models", "measure more models on two platforms"
        )
    return known


def _names(session: Session, keys: Sequence[str]) -> Mapping[str, str]:
    return labels_of(keys, published_names(session.frame)).names


def matrix(session: Session, width: int) -> Figure:
    """Spearman's rho of latency ranks between platforms."""
    pairs, most = _pairs(session, LATENCY), 8 if width == ONE_COLUMN_PX else 20
    known = {key for one in pairs for key in (one.source, one.target)}
    cells = session.cells.cells.filter(pl.col("platform_key").is_in(list(known)))
    keys = list(chosen_platforms(cells, most))
    drawn = [one for one in pairs if one.source in keys and one.target in keys]
    names = _names(session, keys)
    points: _Rows = [
        {"y": names[y], "x": names[x], "rho": one.rho, "shown": f"{one.rho:.2f}"}
        for one in drawn
        for y, x in ((one.source, str(one.target)), (str(one.target), one.source))
    ]
    labels = [names[key] for key in keys]
    room = min(6.2 * max(map(len, labels)), 0.4 * width)
    side = (width - room - 10) / len(keys)
    values = {"labels": labels, "angle": -40, "across": "datum.label"}
    height = round(side * min(1, 34 / side) * len(keys) + 0.7 * room + 20)
    n_out = len(known) - len(keys)
    return Figure(
        name="transfer",
        spec=drawing("matrix", width, height, {"rows": points, "figures": points}, values),
        data=frame_of(Agreement, drawn),
        caption=_caption(
            f"Spearman's rho of latency ranks between {count_of(len(keys), 'platform')}, "
            f"{_models_text(drawn)}.",
            _interval_text(drawn),
            f"Left out: {count_of(n_out, 'platform')}, for room." if n_out else "",
            *transfer(session).notes,
        ),
    )


def _models_text(pairs: Sequence[Agreement]) -> str:
    counts = [one.n_models for one in pairs]
    few, many = min(counts), max(counts)
    return f"n = {few} models" if few == many else f"n = {few} to {many} common models"


def _interval_text(pairs: Sequence[Agreement]) -> str:
    n = sum(one.low is not None for one in pairs)
    if not n:
        return f"No interval: fewer than {MIN_MODELS_FOR_INTERVAL} models."
    return "Intervals (95 %, bootstrap over models) are in the CSV file."


def _ends(session: Session) -> list[Agreement]:
    """The pairs, the most telling first: of two device classes, with many models, of low rho."""
    tiers = dict(session.cells.cells.select("platform_key", "tier").unique().iter_rows())
    return sorted(
        _pairs(session, LATENCY),
        key=lambda one: (
            tiers.get(one.source) == tiers.get(str(one.target)), -one.n_models, one.rho,
        ),
    )  # fmt: skip


def _looks(width: int, families: Iterable[str]) -> dict[str, object]:
    """The marks of the families that are drawn, and their legend."""
    present = set(families)
    marks = {name: one for name, one in FAMILY_MARKS.items() if name in present}
    return {
        "families": [*marks],
        "colours": [one.colour for one in marks.values()],
        "shapes": [one.shape for one in marks.values()],
        "legend": _legend(width) | {"labelExpr": "replace(datum.label, '_', ' ')"},
    }


def _legend(width: int) -> dict[str, object]:
    return {"orient": "bottom", "title": None, "columns": 3 if width == ONE_COLUMN_PX else 6}


def slopes(session: Session, width: int) -> Figure:
    """Ranks of the models on a source, and on a target."""
    pair, panel = _ends(session)[0], session.panel
    source, target = pair.source, str(pair.target)
    values = panel.latency[:, [panel.keys.index(key) for key in (source, target)]]
    has = np.atleast_1d(np.isfinite(values).all(axis=1))
    ranks = average_ranks(values[has])
    data = pl.DataFrame(
        {
            "model": np.array(panel.models)[has].tolist(),
            "family": [panel.families[at] for at in np.flatnonzero(has)],
            "source": source,
            "target": target,
            "source_rank": ranks[:, 0],
            "target_rank": ranks[:, 1],
        }
    )
    names = _names(session, (source, target))
    return Figure(
        name="slopes",
        spec=_slope_spec(width, data, (names[source], names[target])),
        data=data,
        caption=_caption(
            f"Ranks by latency on {names[source]} (left) and {names[target]} (right), the fastest "
            "first.",
            f"Spearman's rho {pair.rho:.2f}{_interval(pair.low, pair.high)}, "
            f"{_models_text([pair])}.",
            f"Coloured: models that shift by {MIN_SHIFT:g} places or more.",
            *transfer(session).notes,
        ),
    )


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" (95 % interval {low:.2f} to {high:.2f})"


def _slope_spec(width: int, data: pl.DataFrame, sides: Sequence[str]) -> Spec:
    """The slope chart; where names would overlap, the models with the largest shift keep theirs."""
    shift = (pl.col("source_rank") - pl.col("target_rank")).abs()
    rows = data.with_columns(pl.col("family").fill_null(NO_FAMILY), places=shift)
    rows = rows.with_columns(off=pl.col("places") >= MIN_SHIFT).sort("places", descending=True)
    ends: _Rows = [
        {**row, "side": side, "rank": row[f"{end}_rank"]}
        for end, side in zip(("source", "target"), sides, strict=True)
        for row in rows.to_dicts()
    ]
    count, height = data.height, 14 * min(data.height, 50) + 100
    named: _Rows = []
    for one in ends:
        gaps = (abs(other["rank"] - one["rank"]) for other in named if other["side"] == one["side"])
        if all(gap * (height - 90) / count >= 10 for gap in gaps):
            named.append({**one, "opacity": 1 if one["off"] else 0.7})
    holes = {
        **_looks(width, rows["family"]), "domain": [count + 0.6, 0.4],
        "sides": [*sides], "left": sides[0], "right": sides[1],
        "above": 12 * max(one.count(", ") for one in sides) + 4,
    }  # fmt: skip
    return drawing("ranks", width, height, {"ends": ends, "names": named}, holes)


def frontier(session: Session, width: int) -> Figure:
    """Accuracy against latency on a target, and which of its best models the source names."""
    cells = session.comparable.cells
    for pair in _ends(session):
        ends = (pair.source, str(pair.target))
        found = next((one for one in frontier_pairs(cells, ends) if one.source == ends[0]), None)
        if found is not None:
            break
    else:
        raise NoDataError(
            "no two platforms share models with a known accuracy", "state `accuracy_top1` in cards"
        )
    on_target = cells.filter(platform_key=found.target).select(
        "model", "accuracy_top1", (pl.col("latency_ns") / NS_PER_MS).alias("ms")
    )
    fates = pl.DataFrame({"model": found.models, "fate": [_FATES[one][0] for one in found.fates]})
    data = fates.join(on_target, on="model").sort("ms")
    is_best = pl.col("fate").is_in([_FATES[Fate.HIT][0], _FATES[Fate.MISS][0]])
    rows = data.with_columns(is_best.alias("onTarget"), accuracy="accuracy_top1").to_dicts()
    height, (low, high) = 250, _span(data["ms"])
    times = [low * 0.85, high * max(high / low, 2) ** 0.25 * 1.1]
    worst, best = _span(data["accuracy_top1"])
    margin = max(1.0, 0.08 * (best - worst))
    accuracies = [worst - margin, best + margin]
    wanted = [row for row in rows if row["fate"] != _FATES[Fate.NEITHER][0]]
    _place(
        rows,
        wanted,
        width - 50,
        height - 80,
        (("ms", times, True), ("accuracy", accuracies, False)),
    )
    names = _names(session, (found.source, found.target))
    hits = found.overlap
    values = {
        "times": times, "ticks": _log_ticks(*times), "accuracies": accuracies,
        **{f"fate{key}": [one[at] for one in _FATES.values()]
           for at, key in ((0, "s"), (1, "Colours"), (2, "Shapes"))},
    }  # fmt: skip
    return Figure(
        name="frontier",
        spec=drawing("frontier", width, height, {"rows": rows, "points": rows}, values),
        data=data.with_columns(source=pl.lit(found.source), target=pl.lit(found.target)),
        caption=_caption(
            f"Accuracy-latency frontier on {names[found.target]}, predicted by "
            f"{names[found.source]}, n = {len(found.models)} models.",
            f"Precision {hits.precision:.2f} (by chance {hits.chance_precision:.2f}), recall "
            f"{hits.recall:.2f}; no interval is computed for one pair.",
            _left_out_models(session, found.target, len(found.models)),
            *session.comparable.notes,
        ),
    )


def _span(values: pl.Series) -> tuple[float, float]:
    known = values.to_numpy()
    return float(known.min()), float(known.max())


def _left_out_models(session: Session, key: str, n_drawn: int) -> str:
    n = session.cells.cells.filter(platform_key=key)["model"].n_unique() - n_drawn
    return f"Left out: {count_of(n, 'model')} that the figure cannot use." if n > 0 else ""


_PLACES = (("left", 8, 9), ("left", 8, -9), ("right", -8, -9), ("right", -8, 9))
"""Of a name beside its point, as `frontier.vl.json` has them: align, dx, dy."""


def _place(rows: _Rows, wanted: _Rows, width: float, height: float,
           axes: Sequence[tuple[str, Sequence[float], bool]]) -> None:  # fmt: skip
    """Gives each wanted row the first `place` where its name covers no point and no other name."""

    def at(row: dict[str, Any]) -> tuple[float, float]:
        x, y = (
            math.log(row[name] / low) / math.log(high / low)
            if is_log
            else (row[name] - low) / (high - low)
            for name, (low, high), is_log in axes
        )
        return x * width, (1 - y) * height

    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in map(at, rows)]
    for row in wanted:
        (x, y), size = at(row), min(110.0, 5.6 * len(str(row["model"])))
        for number, (align, dx, dy) in enumerate(_PLACES):
            left = x + dx - (0 if align == "left" else size)
            box = (left, y + dy - 6, left + size, y + dy + 6)
            is_free = left > 0 and box[2] < width and not any(_overlap(box, one) for one in taken)
            if is_free:
                row["place"] = number
                taken.append(box)
                break


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def flops(session: Session, width: int) -> Figure:
    """Latency against FLOPs on the source, or on the platform with the most models."""
    panel, asked = session.panel, session.selection
    is_meant = panel.platforms.select(fits_platform(asked.source, asked.source_tier)).to_series()
    known = np.isfinite(panel.latency) & np.isfinite(panel.flops)[:, None]
    counts = np.where(is_meant.to_numpy(), known.sum(axis=0), 0)
    column = int(counts.argmax())
    if counts[column] < MIN_MODELS:
        raise NoDataError(
            f"no platform has {MIN_MODELS} models with FLOPs", "measure more models on one platform"
        )
    has, key = known[:, column], panel.keys[column]
    values = np.column_stack([panel.flops, panel.latency[:, column]])[has]
    models = [name for name, is_in in zip(panel.models, has, strict=True) if is_in]
    families = [one for one, is_in in zip(panel.families, has, strict=True) if is_in]
    data = pl.DataFrame({"model": models, "family": families, "platform_key": key,
                         "gflops": values[:, 0] / 1e9, "ms": values[:, 1] / NS_PER_MS})  # fmt: skip
    rows = [
        {
            "model": row["model"],
            "family": row["family"] or NO_FAMILY,
            "x": row["gflops"],
            "y": row["ms"],
        }
        for row in data.iter_rows(named=True)
    ]  # fmt: skip
    across, up = (
        [0.7 * low, 1.6 * high] for low, high in (_span(data["gflops"]), _span(data["ms"]))
    )
    height = 290
    _place(rows, rows, width - 50, height - 85, (("x", across, True), ("y", up, True)))
    rho, low, high = _rho(values, asked.seed)
    count = f"n = {len(models)}"
    holes = {
        **_looks(width, (str(row["family"]) for row in rows)),
        "across": across, "up": up, "acrossTicks": _log_ticks(*across),
        "upTicks": _log_ticks(*up), "source": "GFLOPs, log scale",
        "target": "ms per inference, log scale",
    }  # fmt: skip
    return Figure(
        name="flops",
        spec=drawing("pair", width, height, {"rows": rows}, holes),
        data=data,
        caption=_caption(
            f"Latency against FLOPs on {_names(session, panel.keys)[key]}, {count} models.",
            f"Spearman's rho {rho:.2f}{_interval(low, high)}, bootstrap over models.",
            _left_out_models(session, key, len(models)),
            *panel.notes,
        ),
    )


def _rho(values: Floats, seed: int) -> tuple[float, float | None, float | None]:
    """Spearman's rho of two columns, and its bootstrap interval from 9 models on."""
    rho = float(spearman_matrix(values)[0, 1])
    if len(values) < MIN_MODELS_FOR_INTERVAL:
        return rho, None, None
    counts = resample_counts(len(values), _DRAWS, np.random.default_rng(seed))
    drawn = np.concatenate([products(one)[:, 0, 1] for one in resampled_units(values, counts)])
    low, high = percentile_interval(drawn)
    return rho, float(low), float(high)


def frm(session: Session, width: int) -> Figure:
    """Rho of FRM with its null: between tiers, or between platforms if there are no tiers."""
    found = transfer(session)
    rows = [one for one in found.groups if one.measure == FRM and one.rho is not None]
    what = "tiers" if rows else "platforms"
    rows = rows or _pairs(session, FRM)[:_MOST_ROWS]
    names = _names(session, [key for one in rows for key in (one.source, str(one.target))])
    points: _Rows = [
        {
            "label": f"{names[one.source]} \u2192 {names[str(one.target)]}", "value": one.rho,
            "low": one.low, "high": one.high, "from": one.null_mean, "to": one.null_p95,
            "kind": _exceeds(one),
        }
        for one in rows
    ]  # fmt: skip
    kinds = (
        ("above FLOPs alone", *_AHEAD), ("not above", *_BEHIND), ("not tested", *_OTHER[1:]),
    )  # fmt: skip
    least = min(0.0, *(float(one.low) for one in rows if one.low is not None), 0.0)
    spec = _intervals(
        width, points, kinds, title="Spearman's rho of FRM", scale="linear",
        domain=[math.floor(10 * least) / 10, 1], ticks=[tick / 5 for tick in range(-5, 6)],
    )  # fmt: skip
    return Figure(
        name="frm",
        spec=spec,
        data=frame_of(Agreement, rows),
        caption=_caption(
            f"Rho of FRM between {what}, {_models_text(rows)}.",
            "A line is the 95 % bootstrap interval over models. Grey: from the mean to the 95th "
            "percentile of the null, in which latencies are permuted.",
            "Colour: whether rho exceeds what FLOPs alone give (residual null, p at most 0.05).",
            *found.notes,
        ),
    )


def _exceeds(one: Agreement) -> str:
    if one.exceeds_flops is None:
        return "not tested"
    return "above FLOPs alone" if one.exceeds_flops else "not above"


_WAYS = {
    ReadingStrategy.VANILLA: "vanilla",
    ReadingStrategy.WINDOW: "sliding {}",
    ReadingStrategy.HMT: "hierarchical memory, {}",
}
_UNITS = ("perplexity", "tokens per second")


def contexts(session: Session, width: int) -> Figure:
    """Perplexity over the length of a text by way to read it, and the rate on a platform below."""
    rows = context_readings(session)
    has_several = len({(one.model, one.precision) for one in rows}) > 1

    def line(one: ContextReading) -> str:
        model = f"{one.model}, " if has_several else ""
        return f"{model}{_WAYS[one.strategy].format(one.sizes)}"

    data = frame_of(ContextReading, rows).with_columns(pl.Series("line", map(line, rows)))
    known = data.filter(pl.col("tokens_per_s").is_not_null())["platform_key"]
    keys = known.value_counts(sort=True)["platform_key"].to_list()
    drawn = {
        "perplexity": data.unique(["line", "tokens"], maintain_order=True),
        "tokens_per_s": data.filter(platform_key=keys[0]) if keys else data.clear(),
    }
    lines = data["line"].unique(maintain_order=True).to_list()
    panels = [
        _panel(width, lines, shown.select("line", "tokens", figure=name).drop_nulls(), unit)
        for (name, shown), unit in zip(drawn.items(), _UNITS, strict=True)
        if not shown.is_empty()
    ]
    names = _names(session, keys)
    return Figure(
        name="contexts",
        spec=stacked(panels, width),
        data=data,
        caption=_caption(
            "Perplexity and rate over the length of a text, by way to read it.",
            *_changes(rows, line),
            f"Rates are of {names[keys[0]]}." if keys else "No rate was measured.",
            f"Left out: rates of {count_of(len(keys) - 1, 'platform')}." if len(keys) > 1 else "",
            "Intervals of perplexities (95 %, over documents) are in the CSV file.",
            *session_table("tokens/contexts", session).notes,
        ),
    )


def _panel(width: int, lines: Sequence[str], shown: pl.DataFrame, unit: str) -> Spec:
    low, high = _span(shown["figure"])
    up = [low / 1.15, high * 1.15]
    values = {
        "growing": lines, "models": lines, "room": 220,
        "columns": 1 if width == ONE_COLUMN_PX else 3,
        "scheme": "tableau10" if len(lines) <= 10 else "tableau20",
        "ticks": sorted(set(shown["tokens"])), "across": "tokens of the text, log scale",
        "domain": up, "upTicks": _log_ticks(*up), "unit": f"{unit}, log scale",
    }  # fmt: skip
    points = shown.select("figure", model="line", value="tokens").to_dicts()
    return drawing("scaling", width, 150 + 14 * len(lines), {"rows": points}, values)


def _changes(rows: Sequence[ContextReading], line: Callable[[ContextReading], str]) -> list[str]:
    """For each line, its change from the shortest to the longest text."""
    last = {line(one): one for one in rows}
    first = {line(one): one for one in reversed(rows)}
    return [
        f"{name}: {one.change_percent:+.1f} % from {first[name].tokens:,} to {one.tokens:,} tokens."
        for name, one in last.items()
        if one.tokens > first[name].tokens
    ]


Make = Callable[[Session, int], Figure]
FIGURES: Mapping[str, Make] = MappingProxyType(
    {
        "answer": answer,
        "transfer": matrix,
        "slopes": slopes,
        "frontier": frontier,
        "flops": flops,
        "frm": frm,
        "contexts": contexts,
    }
)
"""The figures, in the order in which they are written."""


def make_figure(name: str, session: Session, width: int = ONE_COLUMN_PX) -> Figure:
    """Makes one figure, `width` pixels wide.

    Raises:
        AnalysisError: no figure has the name, or the rows cannot give it.
    """
    if name not in FIGURES:
        raise AnalysisError(
            f"no figure '{name}'", f"{did_you_mean(name, FIGURES)}there are {', '.join(FIGURES)}"
        )
    return FIGURES[name](session, width)
