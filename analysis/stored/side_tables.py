"""Side tables: stored results that are not measurements of a cell, such as evaluations.

Their rows are in the journal of their sweep, or of `NO_SWEEP`, and in parts beside those of the
measurements. A new side table is a `SideTable` that `SIDE_TABLES` names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.stored.columns import (
    BOOL,
    COLUMNS,
    FLOAT,
    INT,
    INTS,
    STR,
    STRS,
    UTC,
    Column,
    column,
)
from fleetrank.analysis.stored.part_list import part_files, published_sweeps, read_part
from fleetrank.foundation.supervised_child import CoreUse
from fleetrank.foundation.vocabulary import words_of

SWEEP_ID = column("sweep_id", STR, "sweep that the row belongs to; null without a sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTable:
    """One kind of stored results beside the measurements.

    Attributes:
        name: of its folder, of its view for SQL, and of `results export --table`.
        doc: one sentence about its rows.
        own: its columns after `sweep_id`, which every side table has.
    """

    name: str
    doc: str
    own: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in their order."""
        return (SWEEP_ID, *self.own)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Name and type of every column."""
        return {one.name: one.dtype for one in self.columns}


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


# The side table `component_times`: where the time of one inference goes, kernel by kernel.
#
# A profile has its own process: profiling makes an inference slower, so that its times are never
# latencies.

OF_MEASUREMENTS = (
    "cell_key", "repeat", "attempt", "status", "error_kind", "error_message", "error_remedy",
    "error_stage", "error_is_transient", "model", "family", "workload", "platform_key", "device",
    "device_model", "tier", "runtime", "backend", "precision", "batch", "threads", "origin",
    "artifact_sha256", "runtime_version", "fleetrank_version", "started_utc", "finished_utc",
)  # fmt: skip
"""Columns with the names and the meanings that they have in `measurements`."""

_OF_RUN: tuple[Column, ...] = (
    column("runs", INT, "profiled inferences of the process; null if it failed"),
    column("run_ns", INT, "median of one whole inference while it was profiled; not a latency"),
)
_OF_KERNEL: tuple[Column, ...] = (
    column("node", STR, "name of the kernel in the runtime; null if the repeat failed"),
    column("module", STR, "path of its module in the model, empty for the model itself; null if "
           "the file names no modules"),
    column("operator", STR, "the runtime's name of the operation"),
    column("source_operator", STR, "PyTorch's name of the operation that it comes from; null if "
           "the file does not say"),
    column("kernel_ns", INT, "time of the kernel in one inference: the median over the runs"),
    column("calls", INT, "calls in one inference"),
    column("is_inserted", BOOL, "the runtime added the kernel; its module is that of the kernel "
           "beside it"),
    column("output_bytes", INT, "written in one inference; null if the runtime does not report it"),
    column("weight_bytes", INT, "of its parameters; null if the runtime does not report it"),
)  # fmt: skip

_SHARED = {one.name: one for one in COLUMNS}

COMPONENT_TIMES = SideTable(
    name="component_times",
    doc="Time of each kernel of a profiled process; one row per kernel, or per failed attempt.",
    own=(*(_SHARED[name] for name in OF_MEASUREMENTS), *_OF_RUN, *_OF_KERNEL),
)


# The side table `evaluations`: how good a model is on data that the user has.
#
# Each row is one metric of one evaluation, so that new metrics need no new columns.

LOWER_IS_BETTER = frozenset({"perplexity", "bits_per_byte"})
"""Metrics of which the smallest value is the best; of all others it is the largest."""
METRICS = (
    "perplexity", "bits_per_byte", "token_top1", "token_top5", "acc", "acc_norm", "f1", "top1",
    "top5",
)  # fmt: skip
_PLAIN_UNITS = {"perplexity": None, "bits_per_byte": "bits per byte"}
TASKS = ("ppl", "sst2", "rte", "boolq", "mrpc", "smallbench", "images")
FLAGS = ("accuracy_differs", "seeded", "limited", "not_finite")

_IDENTITY: tuple[Column, ...] = (
    column("evaluation_id", STR, "one run of `fleetrank eval`; its metrics share it"),
    column("model", STR, "name of the model card"),
    column("family", STR, "family of the model"),
    column("card_sha256", STR, "of the model card"),
    column("weights", STR, "where the weights come from: seeded, or the name of the file"),
    column("weights_sha256", STR, "of the file of weights; null for seeded weights"),
    column("task", STR, "what was evaluated", TASKS),
    column("data", STR, "name of the file or folder of data"),
    column("data_sha256", STR, "of the data"),
    column("tokenizer", STR, "kind and name of the tokenizer; null for images"),
    column("tokenizer_sha256", STR, "of the tokenizer's file; null for bytes and for images"),
    column("strategy", STR, "how a text is read: vanilla, window, hmt+k8+n16; null for others"),
    column("window_tokens", INT, "tokens that the model reads at once; null for images"),
    column("stride_tokens", INT, "new tokens in each window of a text; null for other tasks"),
    column("prompts", STR, "set of prompts of a task with choices; null for other tasks"),
    column("item_limit", INT, "only so many items were evaluated; null for all items"),
    column("preprocessing", STR, "JSON object: how images become inputs; null for other tasks"),
)
_FIGURES: tuple[Column, ...] = (
    column("quality_metric", STR, "what `quality` is", METRICS),
    column("quality", FLOAT, "the metric; accuracies and F1 in per cent"),
    column("quality_low", FLOAT, "lower end of the 95 % interval; null if it has none"),
    column("quality_high", FLOAT, "upper end of the 95 % interval; null if it has none"),
    column("baseline", FLOAT, "the metric of always giving the most frequent class, for top5 the "
           "five most frequent; null if the metric has no such baseline"),
    column("n_items", INT, "images, examples, or scored tokens"),
    column("right_items", STR, "which items were right, as hexadecimal bits, the first item first; "
           "null for a metric that is not a share of items"),
    column("window_losses", STR, "of a perplexity, JSON: sum of -ln p and number of tokens of each "
           "window; null for other metrics, and if a sum is not finite"),
    column("n_documents", INT, "documents of a text; null for other tasks"),
    column("n_windows", INT, "windows of a text; null for other tasks"),
    column("n_tokens", INT, "scored tokens of the text, or of all answers; null for images"),
    column("n_bytes", INT, "UTF-8 bytes of the original text; null for other tasks"),
    column("nll_nats", FLOAT, "sum of -ln p over the scored tokens; null for images, and if it is "
           "not finite"),
    column("published", FLOAT, "the published value of the metric; null if unknown"),
    column("published_source", STR, "where the published value stands"),
    column("flags", STRS, f"doubts about the row: {', '.join(FLAGS)}"),
)  # fmt: skip
_WHERE: tuple[Column, ...] = (
    column("device", STR, "device that ran the model"),
    column("runtime", STR, "runtime that ran the model"),
    column("backend", STR, "backend of the runtime"),
    column("precision", STR, "number format of the model"),
    column("recipe", STR, "what made integers of the network, and from what; null: nothing did"),
    column("artifact_sha256", STR, "of the exported file"),
    column("runtime_version", STR, "version of the runtime"),
    column("fleetrank_version", STR, "version that wrote the row"),
    column("git_commit", STR, "commit of the workspace"),
    column("started_utc", UTC, "start of the evaluation; of its last part if it was resumed"),
    column("finished_utc", UTC, "end of the evaluation"),
)


def unit_of_metric(name: str) -> str | None:
    """The unit of `quality`, its interval, the baseline and the published value; `None`: a number.

    The unit is of the metric, so a table of several metrics has a column for it.
    """
    return _PLAIN_UNITS.get(name, "percent")


def newest_evaluations(rows: pl.DataFrame) -> pl.DataFrame:
    """The newest row of each model, weights, data, setting, metric, runtime, file and device.

    Args:
        rows: of the side table.
    """
    same = (
        "model", "card_sha256", "weights", "weights_sha256", "task", "data_sha256",
        "tokenizer_sha256", "strategy", "window_tokens", "stride_tokens", "prompts", "item_limit",
        "preprocessing", "quality_metric", "runtime", "backend", "precision", "recipe", "device",
    )  # fmt: skip
    oldest_first = rows.sort("finished_utc", maintain_order=True)
    newest = oldest_first.unique(subset=same, keep="last", maintain_order=True)
    return newest.sort("task", "data", "model", "finished_utc", maintain_order=True)


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


EVALUATIONS = SideTable(
    name="evaluations",
    doc="Quality of models on data that the user has; one row per metric.",
    own=(*_IDENTITY, *_FIGURES, *_WHERE),
)


# The side table `module_macs`: what the MACs of a profiled model consist of.
#
# It is of a network and not of a device: one set of rows for each sweep, model and workload.

MODULE_MACS = SideTable(
    name="module_macs",
    doc="MACs of each module of a profiled network, of one sample; a user's file has no such rows.",
    own=(
        _SHARED["model"],
        _SHARED["workload"],
        column("module", STR, "path of the module, empty for the network itself"),
        column("source_operator", STR, "PyTorch's name of the operation"),
        column("macs", INT, "of this operation in the module, without the modules inside it"),
    ),
)


# The side table `replica_runs`: processes of one cell that ran at the same time.
#
# One row for each process. What belongs to a whole set stands in the row of its first process
# alone, so that a sum over rows counts it once.

OF_SETS = (*OF_MEASUREMENTS, "tokens_per_inference", "memory_metric")
"""Columns with the names and the meanings that they have in `measurements`."""

_OF_SET: tuple[Column, ...] = (
    column("set_id", STR, "one set: processes that were started together"),
    column("n_replicas", INT, "processes that the set was asked for"),
    column("run_s", FLOAT, "seconds that each process was asked to run"),
    column("core_use", STR, "own: no core has two processes; siblings: two of them are hardware "
           "threads of one core; shared: all processes use all CPUs; free: not pinned; null on "
           "other devices than the host's processor", words_of(CoreUse)),
    column("device_energy_mj", FLOAT, "of the whole device in device_energy_ns; in the row of the "
           "first process alone; null without a counter"),
    column("device_energy_ns", INT, "window of the energy, inside of the common run"),
    column("energy_method", STR, "what counted the energy"),
)  # fmt: skip
_OF_PROCESS: tuple[Column, ...] = (
    column("replica", INT, "number of the process, from 1; null if no process has started"),
    column("given_cpus", INTS, "CPUs that the process was pinned to; null if the system chose"),
    column("cpus", INTS, "CPUs that the process could use while it ran"),
    column("start_ns", INT, "start of the first inference, on the host's monotonic clock; null if "
           "the process failed"),
    column("end_ns", INT, "end of the last inference, on the same clock"),
    column("inferences", INT, "inferences from start_ns to end_ns"),
    column("samples_ns", INTS, "time of each inference"),
    column("run_peak_memory_bytes", INT, "peak of this process, as in measurements"),
    column("process_memory_bytes", INT, "GPU memory that the process held; null on a processor, or "
           "if the driver does not list it"),
    column("involuntary_switches", INT, "context switches forced on the process while it ran"),
    column("replica_error_kind", STR, "why this process failed; null if it was measured"),
    column("replica_error_message", STR, "what happened to it"),
    column("flags", STRS, "doubts about the process"),
)  # fmt: skip


REPLICA_RUNS = SideTable(
    name="replica_runs",
    doc="Processes that ran one cell at the same time; one row per process, or per failed set.",
    own=(*(_SHARED[name] for name in OF_SETS), *_OF_SET, *_OF_PROCESS),
)

SIDE_TABLES: Mapping[str, SideTable] = MappingProxyType(
    {table.name: table for table in (COMPONENT_TIMES, EVALUATIONS, MODULE_MACS, REPLICA_RUNS)}
)
