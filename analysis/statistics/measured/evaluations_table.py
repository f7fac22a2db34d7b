"""Table `eval`: how good models are on the user's data, beside what is published."""

import json
import math

import numpy as np
import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.evaluations import EVALUATIONS, newest_evaluations, unit_of_metric
from fleetrank.analysis.stored.name_patterns import fits_model, matches
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.vocabulary import Precision
from fleetrank.foundation.wording import count_of

_SHOWN = (
    "model", "weights", "task", "data", "quality_metric", "quality", "unit", "flags",
    "quality_low", "quality_high", "baseline", "published", "runtime", "precision", "device",
    "strategy", "window_tokens", "prompts", "tokenizer", "n_items", "n_bytes", "data_sha256",
    "tokenizer_sha256",
)  # fmt: skip
_DIGITS = 12
"""Of a checksum, as listings show them."""


def evaluations_table(session: Session) -> Table:
    """The newest evaluation of each model, data set, setting, runtime and device.

    Raises:
        NoDataError: nothing was evaluated, or nothing that the selection names.
    """
    found = selected_evaluations(session)
    units = pl.Series("unit", map(unit_of_metric, found["quality_metric"]), dtype=pl.String)
    shown = (
        found.with_columns(units)
        .select(_SHOWN)
        .with_columns(pl.col("data_sha256", "tokenizer_sha256").str.head(_DIGITS))
    )
    n_seeded = found.filter(pl.col("flags").list.contains("seeded"))["evaluation_id"].n_unique()
    notes = [
        f"{count_of(found['evaluation_id'].n_unique(), 'evaluation')} of "
        f"{count_of(found['model'].n_unique(), 'model')}; compare rows of equal data_sha256 only."
    ]
    if n_seeded:
        notes.append(
            f"{count_of(n_seeded, 'evaluation')} used random weights: the figures show no quality."
        )
    return Table(
        title="Evaluations",
        frame=shown,
        notes=tuple(notes),
        explanation=explained("eval/evaluations"),
    )


def selected_evaluations(session: Session) -> pl.DataFrame:
    """The newest selected ones.

    Raises:
        NoDataError: nothing was evaluated, or nothing that the selection names.
    """
    stored = session.side(EVALUATIONS)
    found = newest_evaluations(stored).filter(_is_selected(session.selection))
    if found.is_empty():
        raise NoDataError(
            "no evaluation is stored" if stored.is_empty() else "no evaluation fits the selection",
            "run `fleetrank eval ppl`, `eval smallbench` or `eval images`",
        )
    return found


_SAME_ITEMS = (
    "model", "card_sha256", "weights", "weights_sha256", "task", "data", "data_sha256", "prompts",
    "tokenizer", "tokenizer_sha256", "strategy", "window_tokens", "stride_tokens", "item_limit",
    "preprocessing", "quality_metric", "runtime", "backend", "device",
)  # fmt: skip


def precision_quality_table(session: Session) -> Table:
    """What a precision costs in quality: the same items in it and in fp32, by the same runtime.

    Raises:
        NoDataError: no selected evaluation is stored in fp32 and in another precision.
    """
    items = selected_evaluations(session).filter(
        pl.any_horizontal(pl.col("right_items", "window_losses").is_not_null())
    )
    is_plain = pl.col("precision") == Precision.FP32
    pairs = items.filter(~is_plain).join(
        items.filter(is_plain), on=_SAME_ITEMS, suffix="_fp32", nulls_equal=True
    )
    if pairs.is_empty():
        raise NoDataError(
            "no evaluation of the same items in fp32 and in another precision by one runtime",
            "run `fleetrank eval images` or `fleetrank eval ppl` in both precisions",
        )
    changes = [
        _change(row["right_items_fp32"], row["right_items"], row["n_items"])
        if row["right_items"] is not None
        else _loss_change(row["window_losses_fp32"], row["window_losses"])
        for row in pairs.iter_rows(named=True)
    ]
    frame = pairs.select(
        "model", "runtime", "precision", "quality_metric", "quality", "quality_fp32", "n_items",
        "data", "device", "backend", "recipe",
    ).hstack(pl.DataFrame(changes, infer_schema_length=None))  # fmt: skip
    return Table(
        title="Quality beside fp32",
        frame=frame.sort("model", "runtime", "precision", "recipe", "quality_metric"),
        notes=(f"{count_of(len(frame), 'pair')} of evaluations over the same items.",),
        explanation=explained("eval/precisions"),
    )


def _change(before: str, after: str, n: int) -> dict[str, float | int | str | None]:
    """The difference in points, its interval, and how many items changed each way."""
    # SciPy takes longer to load than the other tables of this module take.
    from fleetrank.analysis.arrays.significance import paired_share_difference

    first, second = (
        np.unpackbits(np.frombuffer(bytes.fromhex(one), dtype=np.uint8))[:n].astype(bool)
        for one in (before, after)
    )
    n_lost, n_gained = int((first & ~second).sum()), int((second & ~first).sum())
    difference, low, high = paired_share_difference(n_lost, n_gained, n)
    return {
        "difference": 100 * difference, "difference_low": 100 * low, "difference_high": 100 * high,
        "unit": "points", "ratio": None, "n_lost": n_lost, "n_gained": n_gained,
    }  # fmt: skip


def _loss_change(before: str, after: str) -> dict[str, float | int | str | None]:
    """The difference of the loss of a token, its interval, and the ratio of the perplexities."""
    from fleetrank.analysis.arrays.significance import paired_loss_difference

    first, second = (np.array(json.loads(one)) for one in (before, after))
    found = paired_loss_difference(second[:, 0] - first[:, 0], first[:, 1])
    difference, low, high = (None if math.isnan(one) else one for one in found)
    return {
        "difference": difference, "difference_low": low, "difference_high": high,
        "unit": "nats per token", "ratio": math.exp(found[0]), "n_lost": None, "n_gained": None,
    }  # fmt: skip


def _is_selected(selection: Selection) -> pl.Expr:
    is_meant = pl.lit(value=True)
    if selection.models:
        is_meant = is_meant & fits_model(*selection.models)
    if selection.source is not None:
        is_meant = is_meant & matches("device", selection.source)
    for name, wanted in (
        *((name, getattr(selection, name)) for name in ("runtime", "precision", "family")),
        ("tier", selection.source_tier),
        *selection.where,
    ):
        if wanted is not None:
            is_known = name in EVALUATIONS.schema
            is_meant = is_meant & (pl.col(name) == wanted if is_known else pl.lit(value=False))
    return is_meant
