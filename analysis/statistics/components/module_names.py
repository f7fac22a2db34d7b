"""Completes the names of modules that LiteRT shortens, with the modules of the network.

LiteRT's exporter joins the names of the modules that are called. A list of modules is not called,
so `blocks.4.feed` becomes `4.feed`.
"""

import re
from collections.abc import Collection, Iterable

import polars as pl

from fleetrank.foundation.vocabulary import Runtime

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
