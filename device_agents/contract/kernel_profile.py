"""Where the time of one inference goes, kernel by kernel; measured apart from latencies."""

from dataclasses import dataclass

MOST_RUNS = 30
"""Of one process: enough for the time of each kernel, because more runs do not narrow the interval
over processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One node of the graph that the runtime executed, as it reports it.

    Attributes:
        node: its name in the runtime; a fused kernel has the name of one of its nodes.
        module: dotted path of the module that it belongs to, such as `blocks.0.attention`; of a
            fused kernel that of the node that does the work; empty for the model itself, `None` if
            the file names no modules.
        operator: the runtime's name of the operation.
        source_operator: PyTorch's name of the operation that it comes from, such as `linear`; equal
            in all runtimes; `None` if the file does not say, or of a layer with a norm in it.
        kernel_ns: time in one inference: the median over the profiled runs, or their mean where a
            program for phones prints only means.
        calls: how often one inference calls it.
        is_inserted: the runtime added it, for example to change a layout; its module is that of
            the kernel beside it.
        output_bytes: written by one inference; `None` if the runtime does not report it.
        weight_bytes: of the parameters that it reads; `None` if the runtime does not report it.
    """

    node: str
    module: str | None
    operator: str
    kernel_ns: int
    source_operator: str | None = None
    calls: int = 1
    is_inserted: bool = False
    output_bytes: int | None = None
    weight_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The kernels of one process.

    Attributes:
        kernels: in the order of their first call.
        runs: profiled inferences, without warm-up.
        run_ns: one whole inference while it was profiled: the median over the runs. Profiling makes
            it longer, so it is not a latency.
    """

    kernels: tuple[Kernel, ...]
    runs: int
    run_ns: int
