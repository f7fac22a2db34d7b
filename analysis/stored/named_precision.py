"""The precision as a part of the model."""

from pathlib import Path

import polars as pl

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.name_patterns import ANY_PRECISION
from fleetrank.analysis.stored.scope import Rows
from fleetrank.analysis.stored.selection import PRECISION_OF_KEY, Selection
from fleetrank.analysis.stored.side_tables import of_most_models, read_side
from fleetrank.foundation.vocabulary import INTEGERS

_QUANTISATION = r',?"quantisation":"([^"]+)"'


def of_precisions(
    frame: pl.LazyFrame, selection: Selection, results: Path | None = None
) -> pl.LazyFrame:
    """The rows; with the precision `any`, every precision of a model as a separate model.

    The platforms are then without a precision. The accuracy of a model is what `eval images` found
    with its files, on the data of most of them; without any, integers have no accuracy, as a
    published one is of floats. Rows that are named already stay.
    """
    if selection.precision != ANY_PRECISION:
        return frame
    named = named_by_precision(frame)
    found = pl.DataFrame() if results is None else _measured_accuracy(results)
    if found.is_empty():
        has_integers = pl.col("model").str.contains(rf":({'|'.join(INTEGERS)})$")
        return named.with_columns(accuracy_top1=pl.when(~has_integers).then("accuracy_top1"))
    known = named.join(found.lazy(), on="model", how="left")
    return known.with_columns(accuracy_top1=pl.col("measured")).drop("measured")


def named_by_precision(rows: Rows) -> Rows:
    """Models named with their precision, and platforms without one; see `of_precisions`.

    Published files of other integers, such as w8a16, count as int8 with this as an option; here it
    is their precision.
    """
    known = rows.collect_schema()
    word, keys = pl.col("precision"), list[pl.Expr]()
    if "platform_key" in known:
        key = pl.col("platform_key").str.replace(PRECISION_OF_KEY, f"${{1}}{ANY_PRECISION}")
        keys = [key.str.replace(_QUANTISATION, "")]
    if "options" in known:
        word = pl.coalesce(pl.col("options").str.extract(_QUANTISATION), word)
        keys.append(pl.col("options").str.replace(_QUANTISATION, ""))
    is_named = pl.col("precision") == ANY_PRECISION
    # `pl.format` of polars 2.1 panics on a chunk of rows that a filter has emptied.
    name = pl.concat_str("model", pl.lit(":"), word.fill_null("?"))
    return rows.with_columns(
        pl.when(is_named).then("model").otherwise(name).alias("model"),
        pl.lit(ANY_PRECISION).alias("precision"),
        *keys,
    )


def _measured_accuracy(results: Path) -> pl.DataFrame:
    rows = named_by_precision(read_side(results, EVALUATIONS)).filter(
        pl.col("quality_metric") == "top1",
        pl.col("quality").is_not_null(),
        ~pl.col("flags").list.contains("seeded").fill_null(value=False),
    )
    used = of_most_models(rows, ("data_sha256", "item_limit"))
    return used.select("model", pl.col("quality").alias("measured"))
