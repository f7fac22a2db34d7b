"""Which cores a cell is pinned to: pure."""

from dataclasses import dataclass

from fleetrank.analysis.counting import count_of
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

Affinity = tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCores:
    """The cores of one device.

    Attributes:
        one_per_core: one logical CPU of each core in the order to fill them; `None` counts from 0,
            and with none nothing is pinned.
        clusters: of a phone, fastest first: CPUs with one maximum clock; empty elsewhere.
    """

    one_per_core: tuple[int, ...] | None = None
    clusters: tuple[tuple[int, ...], ...] = ()


def affinities(spec: SweepSpec, threads: int, cores: DeviceCores) -> tuple[Affinity, ...]:
    """The CPUs of each pinning a specification asks for; `None` leaves the choice to the system.

    A phone's repeat gets a whole cluster, as its threads may move inside it: pinning them one by
    one is not ours to do there.
    """
    if spec.affinity == "free":
        return (None,)
    if isinstance(spec.affinity, tuple):
        return (spec.affinity[:threads],)
    if cores.clusters:
        words = spec.phones.clusters
        return tuple(dict.fromkeys(cluster_of(word, threads, cores.clusters) for word in words))
    if cores.one_per_core is None:
        return (tuple(range(threads)),)
    # With fewer cores than threads (hyper-threading) any pinning would be a worse guess.
    fits = threads <= len(cores.one_per_core)
    return (cores.one_per_core[:threads] if fits else None,)


def cluster_of(word: str, threads: int, clusters: tuple[tuple[int, ...], ...]) -> Affinity:
    """The CPUs of a phone's cluster by its word.

    `auto` is the fastest with a core for every thread, `None` when no cluster has: a lone prime
    core would make two threads share it. `middle` is the second fastest of three, else what `big`
    is; whoever names a cluster gets it, however many threads share it.
    """
    if word == "auto":
        roomy = (cpus for cpus in clusters if len(cpus) >= threads)
        return next(roomy, None)
    if word == "little":
        return clusters[-1]
    return clusters[1] if word == "middle" and len(clusters) > 2 else clusters[0]


def check_affinity(spec: SweepSpec) -> None:
    """Refuses a list of CPUs that does not fit the threads.

    Raises:
        UsageError: names the key and the problem.
    """
    if not isinstance(spec.affinity, tuple):
        return
    most = max(spec.threads)
    if len(set(spec.affinity)) != len(spec.affinity):
        problem = "a CPU is named twice"
    elif len(spec.affinity) < most:
        too_few = count_of(len(spec.affinity), "CPU is", "CPUs are")
        problem = f"{too_few} too few for {count_of(most, 'thread')}"
    else:
        return
    raise UsageError(
        f"sweep '{spec.name}', key 'affinity': {problem}",
        f"name at least {count_of(most, 'different CPU')}, or leave it out for one CPU of each "
        "core",
    )
