"""Side tables: stored results that are not measurements of a cell, such as evaluations.

Their rows are in the journal of their sweep, or of `NO_SWEEP`, and in parts beside those of the
measurements. A new side table is a `SideTable` that `SIDE_TABLES` names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.stored.column import INT, STR, column
from fleetrank.analysis.stored.component_times import COMPONENT_TIMES, SHARED
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.part_list import part_files, published_sweeps, read_part
from fleetrank.analysis.stored.replica_runs import REPLICA_RUNS
from fleetrank.analysis.stored.side_table import SideTable


def read_side(results: Path, table: SideTable, *, sweeps: Sequence[str] = ()) -> pl.DataFrame:
    """Reads the published rows of a side table, in the order of each journal.

    Args:
        results: the results folder of a workspace.
        table: the side table.
        sweeps: only the rows of these sweeps; empty reads all rows.

    Returns:
        The rows with exactly the columns of the table; empty if nothing is stored.

    Raises:
        DamagedPartError: a part does not match its checksum, or its types are wrong.
    """
    chosen = [one for one in published_sweeps(results) if not sweeps or one in sweeps]
    files = [path for one in chosen for path in part_files(results, one, table.name)]
    empty = pl.DataFrame(schema=table.schema)
    return pl.concat([empty, *(read_part(path, table.schema) for path in files)])


def of_most_models(rows: pl.DataFrame, same: Sequence[str]) -> pl.DataFrame:
    """The newest row of each model, of those that are equal in some columns with most models.

    Of two groups with as many models, the one with the newest evaluation is used.

    Args:
        rows: of the side table.
        same: the columns; the last one decides if all else is equal.
    """
    most = (
        rows.group_by(same)
        .agg(pl.col("model").n_unique().alias("n"), pl.col("finished_utc").max())
        .sort("n", "finished_utc", same[-1], descending=[True, True, False])
        .head(1)
    )
    used = rows.join(most.select(same), on=same, nulls_equal=True)
    return used.sort("finished_utc").unique("model", keep="last")


MODULE_MACS = SideTable(
    name="module_macs",
    doc="MACs of each module of a profiled network, of one sample; a user's file has no such rows.",
    own=(
        SHARED["model"],
        SHARED["workload"],
        column("module", STR, "path of the module, empty for the network itself"),
        column("source_operator", STR, "PyTorch's name of the operation"),
        column("macs", INT, "of this operation in the module, without the modules inside it"),
    ),
)
SIDE_TABLES: Mapping[str, SideTable] = MappingProxyType(
    {table.name: table for table in (COMPONENT_TIMES, EVALUATIONS, MODULE_MACS, REPLICA_RUNS)}
)
