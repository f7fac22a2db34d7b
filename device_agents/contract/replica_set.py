"""Several processes of one cell that ran at the same time: part of a `Measurement`."""

from dataclasses import dataclass

from fleetrank.foundation.core_use import CoreUse
from fleetrank.foundation.vocabulary import EnergyMethod, ErrorKind, Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRun:
    """One process of a set. A failed one has only the first two facts and its error.

    Attributes:
        replica: number of the process, from 1.
        given_cpus: CPUs that it was pinned to; `None` if the system chose.
        cpus: CPUs that it could use while it was timed.
        start_ns: start of its first timed inference, on the host's monotonic clock, which the
            processes of one boot share.
        end_ns: end of its last timed inference, on the same clock.
        samples_ns: time of each inference, in order.
        run_peak_memory_bytes: as in `Measurement`.
        process_memory_bytes: GPU memory that it held; `None` on a processor, or if the driver does
            not list it.
        flags: its own. Load that the other processes of the set made raises none.
        error_kind: `None` if it was measured.
    """

    replica: int
    given_cpus: tuple[int, ...] | None
    cpus: tuple[int, ...] | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    samples_ns: tuple[int, ...] = ()
    run_peak_memory_bytes: int | None = None
    process_memory_bytes: int | None = None
    involuntary_switches: int | None = None
    flags: tuple[Flag, ...] = ()
    error_kind: ErrorKind | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetEnergy:
    """Energy of the whole device while a set ran, counted once for all of its processes.

    Attributes:
        mj: in the window.
        window_ns: from one step of the counter to another, inside of the common run.
        counter_steps: changes of the counter in the window.
    """

    method: EnergyMethod
    mj: float
    window_ns: int
    counter_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """All processes of one set, by number; a set that failed keeps what was measured.

    Attributes:
        count: processes that were asked for. `runs` has fewer if one failed before the start.
        run_s: seconds that each of them was asked to run.
        core_use: `None` if they did not compute on the host's processor.
        energy: `None` without a counter, or with too few steps of it.
    """

    count: int
    run_s: float
    runs: tuple[ReplicaRun, ...]
    core_use: CoreUse | None = None
    energy: SetEnergy | None = None
