"""Decides which cores a cell is pinned to; pure functions."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import CpuChoice
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

Affinity = tuple[int, ...] | None
_FREE: tuple[CpuChoice, Affinity] = (CpuChoice.FREE, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCores:
    """The cores of one device.

    Attributes:
        one_per_core: one logical CPU of each core, in the order of use; `None` counts from 0, and
            empty pins nothing.
        clusters: a phone's groups of CPUs of one kind, fastest first; empty for other devices.
        small: CPUs of the clusters of smaller kinds.
    """

    one_per_core: tuple[int, ...] | None = None
    clusters: tuple[tuple[int, ...], ...] = ()
    small: tuple[int, ...] = ()


def affinities(
    spec: SweepSpec, threads: int, cores: DeviceCores
) -> tuple[tuple[CpuChoice, Affinity], ...]:
    """What a specification asks for, and the CPUs of it; `None` leaves it to the system.

    A phone's repeat gets a whole cluster and its threads may move inside it, because threads
    cannot be pinned individually there.
    """
    if spec.affinity == "free":
        return (_FREE,)
    if isinstance(spec.affinity, tuple):
        return ((CpuChoice.LISTED, spec.affinity[:threads]),)
    if cores.clusters:
        words = spec.phones.clusters
        found = dict.fromkeys(cluster_of(word, threads, cores) for word in words)
        return tuple(_FREE if cpus is None else (CpuChoice.CLUSTER, cpus) for cpus in found)
    if cores.one_per_core is None:
        return ((CpuChoice.FIRST_CORES, tuple(range(threads))),)
    # With fewer cores than threads (hyper-threading) any pinning would be worse than no pinning.
    fits = threads <= len(cores.one_per_core)
    return ((CpuChoice.FIRST_CORES, cores.one_per_core[:threads]) if fits else _FREE,)


def replica_cpus(
    spec: SweepSpec, execution: Execution, n_processes: int, cores: DeviceCores
) -> tuple[tuple[int, ...], ...] | None:
    """The CPUs of each process of a set, the fastest first; `None` leaves them to the system.

    Each process has CPUs that no other one has, as many as it has threads. With fewer CPUs than
    threads all processes have all CPUs: unequal shares would make some of them slower than others.
    """
    known = cores.one_per_core or tuple(cpu for cluster in cores.clusters for cpu in cluster)
    pool = spec.affinity if isinstance(spec.affinity, tuple) else known
    if execution.affinity is None or not pool:
        return None
    n_threads = execution.threads
    if n_processes * n_threads > len(pool):
        return (tuple(pool),) * n_processes
    return tuple(pool[n * n_threads : (n + 1) * n_threads] for n in range(n_processes))


def cluster_of(word: str, threads: int, cores: DeviceCores) -> Affinity:
    """The CPUs of a phone's cluster, by the name of the cluster.

    `auto` is the fastest cluster with a core for every thread, because two threads would share a
    single prime core; else all clusters together, but those of smaller kinds. A thread on a small
    core makes all others wait, so `None`, the system's choice, follows if these are too few.
    `middle` is the second fastest of three clusters, otherwise the same as `big`. A cluster
    requested by name is used even if it has fewer cores than threads.
    """
    clusters = cores.clusters
    if word == "auto":
        large = [cpus for cpus in clusters if not set(cpus) <= set(cores.small)]
        joined = tuple(cpu for cpus in large for cpu in cpus)
        return next((cpus for cpus in (*large, joined) if len(cpus) >= threads), None)
    if word == "little":
        return clusters[-1]
    return clusters[1] if word == "middle" and len(clusters) > 2 else clusters[0]


def check_affinity(spec: SweepSpec) -> None:
    """Rejects a list of CPUs that does not match the number of threads.

    Raises:
        UsageError: names the key and the problem.
    """
    if not isinstance(spec.affinity, tuple):
        return
    most = max(spec.threads)
    if len(set(spec.affinity)) != len(spec.affinity):
        problem = "a CPU is listed twice"
    elif len(spec.affinity) < most:
        too_few = count_of(len(spec.affinity), "CPU is", "CPUs are")
        problem = f"{too_few} too few for {count_of(most, 'thread')}"
    else:
        return
    raise UsageError(
        f"sweep '{spec.name}', key 'affinity': {problem}",
        f"list at least {count_of(most, 'different CPU')}, or omit it to use one CPU of each core",
    )
