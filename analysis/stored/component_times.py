"""The side table `component_times`: where the time of one inference goes, kernel by kernel.

A profile has its own process: profiling makes an inference slower, so that its times are never
latencies.
"""

from fleetrank.analysis.stored.column import BOOL, INT, STR, Column, column
from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.analysis.stored.side_table import SideTable

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
SHARED = {one.name: one for one in COLUMNS}
COMPONENT_TIMES = SideTable(
    name="component_times",
    doc="Time of each kernel of a profiled process; one row per kernel, or per failed attempt.",
    own=(*(SHARED[name] for name in OF_MEASUREMENTS), *_OF_RUN, *_OF_KERNEL),
)
