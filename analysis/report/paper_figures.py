"""The figures of a paper by name: each is a function from a session to points and a caption.

A figure uses the same tables and Vega-Lite files as the page. To add one, write a function
`(session, width) -> PaperFigure` and name it in `FIGURES`. If its rows are values with intervals
beside a reference, it needs only points for `_intervals`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, average_ranks
from fleetrank.analysis.chart_points import Fate, frontier_pairs
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.figures import FAMILY_MARKS, chosen_platforms
from fleetrank.analysis.labels import labels_of, published_names
from fleetrank.analysis.panel.agreement import Agreement, pair_figures
from fleetrank.analysis.panel.panel import FRM, LATENCY, Measure
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.charts import ONE_COLUMN_PX, PaperFigure, Spec, drawing
from fleetrank.analysis.statistics.claims.claims import ClaimVerdict
from fleetrank.analysis.statistics.pairs.pair_orders import LISTED, Order, PairOrder
from fleetrank.analysis.statistics.pairs.pairs import faster, main_pair, pair_table
from fleetrank.analysis.statistics.ranks.disagreement import MIN_SHIFT
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
_MOST_SLOPES = 36
"""Rows of 14 px: more would be higher than half a page."""
_NAME_PX = 11
"""From one name to the next."""
_LARGEST_RATIO = 8.0
"""A larger one is drawn at the end of its axis."""
_AHEAD, _BEHIND, _OTHER = ("#0072B2", "circle"), ("#D55E00", "triangle-up"), ("#8a919c", "square")
"""Colour and shape of what is better, worse, and neither."""
_FATES = {
    Fate.HIT: ("hit", "#009E73", "circle"), Fate.MISS: ("miss", "#D55E00", "diamond"),
    Fate.FALSE: ("false alarm", "#CC79A7", "cross"),
    Fate.NEITHER: ("on neither", "#8a919c", "circle"),
}  # fmt: skip


def answer(session: Session, width: int) -> PaperFigure:
    """Two models on every platform: of a selection of two models these, else the main pair."""
    asked = session.selection.models
    every = session.asked(replace(session.selection, model=None))
    found = faster(every, *asked) if len(asked) == 2 else main_pair(session)
    if found is None:
        raise NoDataError("no two models are apart here", "select two: `model=A` and `model=B`")
    a, b, factor = found.here.model_a, found.here.model_b, 1 + found.margin
    order = {name: at for at, name in enumerate(LISTED)}
    known = [one for one in (found.here, *found.targets) if one.ratio is not None]
    rows = sorted(known, key=lambda one: (order.get(one.order, len(order)), one.ratio))[:_MOST_ROWS]
    words: dict[Order, str] = {Order.A_FIRST: "faster", Order.B_FIRST: "slower"}
    looks = {
        Order.HERE: ("#000000", "diamond"), Order.KEPT: _AHEAD, words[Order.A_FIRST]: _AHEAD,
        Order.REVERSED: _BEHIND, words[Order.B_FIRST]: _BEHIND,
    }  # fmt: skip
    points: _Rows = [
        {"label": one.label, "value": one.ratio, "low": one.low, "high": one.high,
         "from": 1 / factor, "to": factor, "kind": words.get(one.order, one.order)}
        for one in rows
    ]  # fmt: skip
    ends = [end for one in rows for end in (one.ratio, one.low, one.high) if end]
    reach = 1.05 * min(max(1.25, *(max(end, 1 / end) for end in ends)), _LARGEST_RATIO)
    scale = {"scale": "log", "domain": [1 / reach, reach], "ticks": _log_ticks(1 / reach, reach)}
    table = pair_table(found)
    return PaperFigure(
        spec=_intervals(width, points, looks, title=[a, f"times as fast as {b}"], **scale),
        data=frame_of(PairOrder, rows),
        caption=_caption(
            f"{a} against {b} on {count_of(len(rows), 'platform')}.",
            "A point is the ratio of their figures, a line its 95 % interval over processes; the "
            f"grey band is a difference of up to {100 * found.margin:.0f} %.",
            _left_out(table.frame.height - len(rows), "row"),
            *table.notes,
        ),
    )


def _intervals(width: int, points: _Rows, looks: Mapping[str, tuple[str, str]],
               **values: object) -> Spec:  # fmt: skip
    """Rows of a value with its interval, over the grey band of each; `kind` decides the look."""
    kinds = list(dict.fromkeys(one["kind"] for one in points))
    colours, shapes = zip(*(looks.get(one, _OTHER) for one in kinds), strict=True)
    columns = max(1, width // 2 // (6 * max(map(len, kinds)) + 30))
    height = _ROW_PX * len(points) + 63 + 12 * math.ceil(len(kinds) / columns)
    short = _shortened([one["label"] for one in points], width // 12)
    rows = [{**one, "label": short[one["label"]]} for one in points]
    legend = _legend(width) | {"columns": columns}
    values |= {"kinds": kinds, "colours": colours, "shapes": shapes, "room": 0.5 * width}
    return drawing("intervals", width, height, {"rows": rows}, {**values, "legend": legend})


def _short(name: str, most: int = 18) -> str:
    """A long name without its middle, that of the device in the name of a platform.

    Drawing a name that does not fit takes long.
    """
    first, comma, rest = name.partition(", ")
    room = max(most - len(comma + rest), 8)
    if len(first) <= room or len(name) <= most:
        return name
    return f"{first[: room // 2]}\u2026{first[room // 2 + 1 - room :]}{comma}{rest}"


def _shortened(names: Sequence[str], most: int) -> dict[str, str]:
    """Names as `_short` gives them; equal ones are numbered."""
    found: dict[str, str] = {}
    for name in names:
        alike = sum(_short(other, most) == _short(name, most) for other in found)
        found[name] = _short(name, most) + (f" ({alike + 1})" if alike else "")
    return found


def _legend(width: int) -> dict[str, object]:
    return {"orient": "bottom", "title": None, "columns": 3 if width == ONE_COLUMN_PX else 6}


def _caption(*parts: str) -> str:
    return "\n".join(dict.fromkeys(filter(None, parts))) + "\n"


def _left_out(n: int, what: str) -> str:
    return f"Left out: {count_of(n, what)} that the figure cannot show." if n > 0 else ""


def _rho_text(one: Agreement) -> str:
    ends = "" if one.low is None else f" (95 % interval {one.low:.2f} to {one.high:.2f})"
    return f"Spearman's rho {one.rho:.2f}{ends}"


def _log_ticks(low: float, high: float) -> list[float]:
    """Round values between two limits above 0: powers of ten, or more if these are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        every = [float(f"{step * 10.0**power:.6g}") for power in powers for step in steps]
        if len(ticks := [tick for tick in every if low <= tick <= high]) >= 3:
            return ticks
    step = 10.0 ** math.floor(math.log10(high - low))
    return [at * step for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _pairs(session: Session, measure: str) -> list[Agreement]:
    """The compared pairs of platforms that have a rho."""
    found = [one for one in transfer(session).pairs if one.measure == measure]
    if known := [one for one in found if one.rho is not None and one.target is not None]:
        return known
    raise NoDataError(
        f"no two platforms share {MIN_MODELS} models", "measure more models on two platforms"
    )


def _names(session: Session, keys: Sequence[str]) -> Mapping[str, str]:
    return labels_of(keys, published_names(session.frame)).names


def _models_text(pairs: Sequence[Agreement]) -> str:
    few, many = (pick(one.n_models for one in pairs) for pick in (min, max))
    return f"n = {few} models" if few == many else f"n = {few} to {many} common models"


def matrix(session: Session, width: int) -> PaperFigure:
    """Spearman's rho of latency ranks between platforms."""
    pairs, most = _pairs(session, LATENCY), 8 if width == ONE_COLUMN_PX else 20
    known = {key for one in pairs for key in (one.source, str(one.target))}
    cells = session.cells.cells.filter(pl.col("platform_key").is_in(list(known)))
    names = _names(session, list(chosen_platforms(cells, most)))
    drawn = [one for one in pairs if {one.source, one.target} <= names.keys()]
    short = _shortened([*names.values()], 20 if width == ONE_COLUMN_PX else 32)
    points: _Rows = [
        {"y": short[names[y]], "x": short[names[x]], "rho": one.rho, "shown": f"{one.rho:.2f}"}
        for one in drawn
        for y, x in ((one.source, str(one.target)), (str(one.target), one.source))
    ]
    room = 5.6 * max(map(len, short.values())) + 16
    side = min((width - room) / len(names), 34)
    values = {"labels": [*short.values()], "angle": -40, "across": "datum.label"}
    intervals = "Intervals (95 %, bootstrap over models) are in the CSV file."
    return PaperFigure(
        spec=drawing(
            "matrix",
            width,
            round(side * len(names) + 0.7 * room + 20),
            {"rows": points, "figures": points if side >= 24 else []},
            values,
        ),
        data=frame_of(Agreement, drawn),
        caption=_caption(
            f"Spearman's rho of latency ranks between {count_of(len(names), 'platform')}, "
            f"{_models_text(drawn)}.",
            intervals if any(one.low is not None for one in drawn) else "Too few for intervals.",
            _left_out(len(known) - len(names), "platform"),
            *transfer(session).notes,
        ),
    )


def _ends(session: Session) -> list[Agreement]:
    """The pairs, the most telling first: of two tiers, with many models, of low rho."""
    tiers = dict(session.cells.cells.select("platform_key", "tier").unique().iter_rows())

    def place(one: Agreement) -> tuple[bool, int, float | None]:
        return tiers.get(one.source) == tiers.get(str(one.target)), -one.n_models, one.rho

    return sorted(_pairs(session, LATENCY), key=place)


def slopes(session: Session, width: int) -> PaperFigure:
    """Ranks of the models on a source, and on a target."""
    pair, panel = _ends(session)[0], session.panel
    keys = pair.source, str(pair.target)
    values = panel.latency[:, [panel.keys.index(key) for key in keys]]
    known = np.asarray(np.isfinite(values).all(axis=1))
    ends = dict(zip(("source_rank", "target_rank"), average_ranks(values[known]).T, strict=True))
    data = pl.DataFrame({"model": panel.models, "family": panel.families}).filter(known)
    data = data.with_columns(**ends, source=pl.lit(keys[0]), target=pl.lit(keys[1]))
    source, target = (_names(session, keys)[key] for key in keys)
    spec, n_named = _slope_spec(width, data, (source, target))
    bare = data.height - n_named
    return PaperFigure(
        spec=spec,
        data=data,
        caption=_caption(
            f"Ranks by latency on {source} (left) and {target} (right), the fastest first.",
            f"{_rho_text(pair)}, {_models_text([pair])}.",
            f"Coloured: named models that shift by {MIN_SHIFT:g} places or more.",
            f"Without a name, for lack of room: {count_of(bare, 'model')}." if bare else "",
            *transfer(session).notes,
        ),
    )


def _slope_spec(width: int, data: pl.DataFrame, sides: Sequence[str]) -> tuple[Spec, int]:
    """The slope chart, and how many models it names: those with the largest shift come first."""
    short = [", ".join(map(_short, one.split(", "))) for one in sides]
    sides = short if len(set(short)) > 1 else sides
    shift = (pl.col("source_rank") - pl.col("target_rank")).abs()
    rows = data.with_columns(pl.col("family").fill_null(NO_FAMILY), places=shift)
    rows = rows.sort("places", descending=True, maintain_order=True)
    columns, height = ("source_rank", "target_rank"), 14 * min(data.height, _MOST_SLOPES) + 100
    least, named = _NAME_PX * data.height / (height - 90), _Rows()
    for row in rows.to_dicts():
        if all(abs(other[end] - row[end]) >= least for other in named for end in columns):
            named.append(row)
    has_name = pl.col("model").is_in([row["model"] for row in named])
    off = has_name & (pl.col("places") >= MIN_SHIFT)
    opacity = pl.when(off).then(1.0).otherwise(0.7)
    rows = rows.with_columns(off=off, has_name=has_name, opacity=opacity)
    ends: _Rows = [
        {**row, "model": _short(row["model"]), "side": side, "rank": row[end]}
        for end, side in zip(columns, sides, strict=True)
        for row in rows.to_dicts()
    ]
    holes = {
        **_looks(width, rows["family"]), "domain": [data.height + 0.6, 0.4],
        "sides": [*sides], "left": sides[0], "right": sides[1],
        "above": 12 * max(one.count(", ") for one in sides) + 4,
    }  # fmt: skip
    shown = {"ends": ends, "names": [one for one in ends if one["has_name"]]}
    return drawing("ranks", width, height, shown, holes), len(named)


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


def frontier(session: Session, width: int) -> PaperFigure:
    """Accuracy against latency on a target, and which of its best models the source names."""
    cells = session.comparable.cells
    every = (
        found
        for pair in _ends(session)
        for found in frontier_pairs(cells, (pair.source, str(pair.target)))
        if found.source == pair.source
    )
    if (found := next(every, None)) is None:
        raise NoDataError(
            "no two platforms share models with a known accuracy", "state `accuracy_top1` in cards"
        )
    fates = pl.DataFrame({"model": found.models, "fate": [_FATES[one][0] for one in found.fates]})
    ms = pl.col("latency_ns") / NS_PER_MS
    on_target = cells.filter(platform_key=found.target)
    data = fates.join(
        on_target.select("model", ms.alias("ms"), accuracy="accuracy_top1"), on="model"
    ).sort("ms")
    best = [_FATES[Fate.HIT][0], _FATES[Fate.MISS][0]]
    rows = data.with_columns(onTarget=pl.col("fate").is_in(best)).to_dicts()
    rows = [{**row, "model": _short(row["model"])} for row in rows]
    (low, high), (worst, top) = _span(data["ms"]), _span(data["accuracy"])
    margin, height = max(1.0, 0.08 * (top - worst)), 250
    times = (low * 0.85, high * max(high / low, 2) ** 0.25 * 1.1)
    accuracies = (worst - margin, top + margin)
    wanted = [row for row in rows if row["fate"] != _FATES[Fate.NEITHER][0]]
    _place(rows, wanted, (width - 50, height - 80), ms=(times, True), accuracy=(accuracies, False))
    columns = zip(*_FATES.values(), strict=True)
    values = dict(zip(("fates", "fateColours", "fateShapes"), columns, strict=True))
    ranges = {"times": times, "ticks": _log_ticks(*times), "accuracies": accuracies}
    names, hits = _names(session, (found.source, found.target)), found.overlap
    return PaperFigure(
        spec=drawing(
            "frontier", width, height, {"rows": rows, "points": rows}, {**values, **ranges}
        ),
        data=data.with_columns(source=pl.lit(found.source), target=pl.lit(found.target)),
        caption=_caption(
            f"Accuracy-latency frontier on {names[found.target]}, predicted by "
            f"{names[found.source]}, n = {len(found.models)} models.",
            f"Precision {hits.precision:.2f} (by chance {hits.chance_precision:.2f}), recall "
            f"{hits.recall:.2f}; no interval is computed for one pair.",
            _left_out(on_target["model"].n_unique() - len(rows), "model"),
            *session.comparable.notes,
        ),
    )


def _span(values: pl.Series) -> tuple[float, float]:
    known = values.to_numpy()
    return float(known.min()), float(known.max())


_PLACES = ((8, 9), (8, -9), (-8, -9), (-8, 9))
"""Of a name beside its point, as `frontier.vl.json` has them: dx, dy; to the left if below 0."""


def _place(rows: _Rows, wanted: _Rows, size: tuple[float, float],
           **axes: tuple[tuple[float, float], bool]) -> None:  # fmt: skip
    """Gives each wanted row the first `place` where its name covers no point and no other name."""

    def share(row: dict[str, Any], name: str) -> float:
        (low, high), is_log = axes[name]
        low, high, value = (math.log(v) if is_log else v for v in (low, high, row[name]))
        return (value - low) / (high - low)

    def at(row: dict[str, Any]) -> tuple[float, float]:
        across, up = axes
        return share(row, across) * size[0], (1 - share(row, up)) * size[1]

    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in map(at, rows)]
    for row in wanted:
        (x, y), length = at(row), min(110.0, 5.6 * len(str(row["model"])))
        for number, (dx, dy) in enumerate(_PLACES):
            left = x + dx - (length if dx < 0 else 0)
            right, top, bottom = left + length, y + dy - 6, y + dy + 6
            is_inside = left > 0 and right < size[0]
            if is_inside and not any(
                left < x2 and x1 < right and top < y2 and y1 < bottom for x1, y1, x2, y2 in taken
            ):
                row["place"] = number
                taken.append((left, top, right, bottom))
                break


def flops(session: Session, width: int) -> PaperFigure:
    """Latency against FLOPs on the source, or on the platform with the most models."""
    panel, asked, height = session.panel, session.selection, 290
    is_meant = panel.platforms.select(fits_platform(asked.source, asked.source_tier)).to_series()
    known = np.isfinite(panel.latency) & np.isfinite(panel.flops)[:, None]
    counts = np.where(is_meant.to_numpy(), known.sum(axis=0), 0)
    column = int(counts.argmax())
    if counts[column] < MIN_MODELS:
        raise NoDataError(
            f"no platform has {MIN_MODELS} models with FLOPs", "measure more models on one platform"
        )
    models = {"model": panel.models, "family": panel.families}
    figures = {"gflops": panel.flops / 1e9, "ms": panel.latency[:, column] / NS_PER_MS}
    data = pl.DataFrame({**models, **figures}).filter(pl.Series(known[:, column]))
    rows = data.with_columns(pl.col("family").fill_null(NO_FAMILY), x="gflops", y="ms").to_dicts()
    rows = [{**row, "model": _short(row["model"])} for row in rows]
    across, up = ((0.7 * low, 1.6 * high) for low, high in map(_span, (data["gflops"], data["ms"])))
    _place(rows, rows, (width - 50, height - 85), x=(across, True), y=(up, True))
    both = data.select(*figures).to_numpy()
    measure = Measure(name="flops", rest=both, latency=np.ones_like(both), has_latency=False)
    (rho,) = pair_figures(measure, [(0, 1)], asked.seed)
    holes = {
        **_looks(width, (row["family"] for row in rows)),
        "across": across, "acrossTicks": _log_ticks(*across), "source": "GFLOPs, log scale",
        "up": up, "upTicks": _log_ticks(*up), "target": "ms per inference, log scale",
    }  # fmt: skip
    key = panel.keys[column]
    return PaperFigure(
        spec=drawing("pair", width, height, {"rows": rows}, holes),
        data=data.with_columns(platform_key=pl.lit(key)),
        caption=_caption(
            f"Latency against FLOPs on {_names(session, panel.keys)[key]}, "
            f"{count_of(len(rows), 'model')}.",
            f"{_rho_text(rho)}, bootstrap over models.",
            _left_out(int(np.isfinite(panel.latency[:, column]).sum()) - len(rows), "model"),
            *panel.notes,
        ),
    )


def frm(session: Session, width: int) -> PaperFigure:
    """Rho of FRM with its null: between tiers, or between platforms if there are no tiers."""
    found = transfer(session)
    groups = [one for one in found.groups if one.measure == FRM and one.rho is not None]
    rows = groups or _pairs(session, FRM)[:_MOST_ROWS]
    names = _names(session, [key for one in rows for key in (one.source, str(one.target))])
    kinds = {True: "above FLOPs alone", False: "not above", None: "not tested"}
    points: _Rows = [
        {"label": f"{names[one.source]} \u2192 {names[str(one.target)]}", "value": one.rho,
         "low": one.low, "high": one.high, "from": one.nulls.null_mean, "to": one.nulls.null_p95,
         "kind": kinds[one.exceeds_flops]}
        for one in rows
    ]  # fmt: skip
    least = math.floor(10 * min(0.0, *(one.low or 0.0 for one in rows), 0.0)) / 10
    scale = {"scale": "linear", "domain": [least, 1], "ticks": [at / 5 for at in range(-5, 6)]}
    looks = {kinds[True]: _AHEAD, kinds[False]: _BEHIND}
    return PaperFigure(
        spec=_intervals(width, points, looks, title="Spearman's rho of FRM", **scale),
        data=frame_of(Agreement, rows),
        caption=_caption(
            f"Rho of FRM between {'tiers' if groups else 'platforms'}, {_models_text(rows)}.",
            "A line is the 95 % bootstrap interval over models. Grey: from the mean to the 95th "
            "percentile of the null, in which latencies are permuted.",
            "Colour: whether rho exceeds what FLOPs alone give (residual null, p at most 0.05).",
            *found.notes,
        ),
    )


_WAYS = {
    ReadingStrategy.VANILLA: "vanilla",
    ReadingStrategy.WINDOW: "sliding {}",
    ReadingStrategy.HMT: "hierarchical memory, {}",
}
_UNITS = {"perplexity": "perplexity, log scale", "tokens_per_s": "tokens per second, log scale"}
_UNITS_PX = 75
"""Beside a panel: its axis and unit."""


def contexts(session: Session, width: int) -> PaperFigure:
    """Perplexity over the length of a text by way to read it, and the rate on a platform below."""
    table = session_table("tokens/contexts", session)
    has_several = table.frame.select("model", "precision").unique().height > 1
    lines = [
        f"{model}, " * has_several + _WAYS[strategy].format(sizes)
        for model, strategy, sizes in table.frame.select("model", "strategy", "sizes").iter_rows()
    ]
    data = table.frame.with_columns(pl.Series("line", lines))
    timed = data.filter(pl.col("tokens_per_s").is_not_null())["platform_key"]
    keys = timed.value_counts(sort=True)["platform_key"].to_list()
    one_of_each = data.unique(["line", "tokens"], maintain_order=True)
    drawn = {"perplexity": one_of_each, "tokens_per_s": data.filter(platform_key=(keys or [""])[0])}
    rows = pl.concat(
        shown.select("line", "tokens", figure=name, unit=pl.lit(_UNITS[name]))
        for name, shown in drawn.items()
    ).drop_nulls()
    every = list(dict.fromkeys(lines))
    values = {
        "lines": every, "ticks": sorted(set(rows["tokens"])), "across": width - _UNITS_PX,
        "columns": 1 if width == ONE_COLUMN_PX else 3,
        "scheme": "tableau10" if len(every) <= 10 else "tableau20",
    }  # fmt: skip
    last = one_of_each.group_by("line", maintain_order=True).last()
    shortest = dict(one_of_each.group_by("line").agg(pl.col("tokens").min()).iter_rows())
    return PaperFigure(
        spec=drawing("lengths", width, 0, {"rows": rows.to_dicts()}, values),
        data=data,
        caption=_caption(
            "Perplexity and rate over the length of a text, by way to read it.",
            *(
                f"{line}: {change:+.1f} % from {shortest[line]:,} to {tokens:,} tokens."
                for line, change, tokens in last.select(
                    "line", "change_percent", "tokens"
                ).iter_rows()
            ),
            f"Rates are of {_names(session, keys)[keys[0]]}." if keys else "No rate is known.",
            _left_out(len(keys) - 1, "platform"),
            "Intervals of perplexities (95 %, over documents) are in the CSV file.",
            *table.notes,
        ),
    )


def claims(session: Session, width: int) -> PaperFigure:
    """Each claim of the study from -1 to 1: its value, and the figure here with its interval."""
    table = session_table("claims", session)
    is_drawn = (pl.col("figure").abs() <= 1) & (pl.col("study").abs() <= 1)
    data = table.frame.filter(is_drawn)
    if data.is_empty():
        raise NoDataError(
            "no claim has a figure in these rows", "`fleetrank report show claims` has the reasons"
        )
    points: _Rows = [
        {"label": row["claim"], "value": row["figure"], "low": row["low"], "high": row["high"],
         "from": row["study"] - _HALF_BAR, "to": row["study"] + _HALF_BAR, "kind": row["verdict"]}
        for row in data.iter_rows(named=True)
    ]  # fmt: skip
    looks: dict[str, tuple[str, str]] = {ClaimVerdict.HOLDS: _AHEAD, ClaimVerdict.FAILS: _BEHIND}
    least = min(0.0, *data["figure"], *data["low"].drop_nulls())
    scale = {"scale": "linear", "domain": [math.floor(5 * least) / 5, 1]}
    ticks = {"ticks": [at / 5 for at in range(-5, 6)]}
    return PaperFigure(
        spec=_intervals(width, points, looks, title="figure here", **scale, **ticks),
        data=data,
        caption=_caption(
            f"{table.title}: {count_of(data.height, 'claim')} in these rows.",
            "A point is the figure here, a line its 95 % interval, a grey bar what the study "
            "states. n is in the CSV file.",
            _left_out(table.frame.height - data.height, "claim"),
            *table.notes,
        ),
    )


_HALF_BAR = 0.006
"""Half the width of the bar that marks what a study states."""
FIGURES: Mapping[str, Callable[[Session, int], PaperFigure]] = MappingProxyType(
    {
        "answer": answer, "transfer": matrix, "slopes": slopes, "frontier": frontier,
        "flops": flops, "frm": frm, "contexts": contexts, "claims": claims,
    }
)  # fmt: skip
"""The figures, in the order in which they are written."""


def make_figure(name: str, session: Session, width: int = ONE_COLUMN_PX) -> PaperFigure:
    """Makes one figure, `width` pixels wide.

    Raises:
        AnalysisError: no figure has the name, or the rows cannot give it.
    """
    if name not in FIGURES:
        raise AnalysisError(
            f"no figure '{name}'", f"{did_you_mean(name, FIGURES)}there are {', '.join(FIGURES)}"
        )
    return FIGURES[name](session, width)
