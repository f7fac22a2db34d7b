"""The side table `replica_runs`: processes of one cell that ran at the same time.

One row for each process. What belongs to a whole set stands in the row of its first process alone,
so that a sum over rows counts it once.
"""

from fleetrank.analysis.stored.column import FLOAT, INT, INTS, STR, STRS, Column, column
from fleetrank.analysis.stored.component_times import OF_MEASUREMENTS, SHARED
from fleetrank.analysis.stored.side_table import SideTable
from fleetrank.foundation.core_use import CoreUse
from fleetrank.foundation.vocabulary import words_of

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
    own=(*(SHARED[name] for name in OF_SETS), *_OF_SET, *_OF_PROCESS),
)
