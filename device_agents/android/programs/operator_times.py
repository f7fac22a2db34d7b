"""Reads the times of operators that `benchmark_model --enable_op_profiling=true` prints.

After "Regular Benchmark Runs:", the table `Run Order` has a row for each node: its type, in older
versions its start, the first and the mean time of a call in milliseconds, two shares, memory, calls
in one run, and its name. A name is the list of the tensors that the node writes, and its number.
LiteRT's exporter from PyTorch names tensors after modules.

A delegate is one node, unless it reports its own operators. XNNPACK of newer versions does, in
place of that node. In older versions, and in other delegates, its operators have the type
`DelegateOpInvoke`, in the same table or in another one, and their time is in that node too.

The program's CSV file is not used: the option for it has another name in other versions, and the
profiler counts microseconds, so the file is hardly more precise.

Source: tflite/profiling/profile_summarizer.cc and profile_summary_formatter.cc of LiteRT 2 and
TensorFlow 2.4, stats_calculator.cc of TensorFlow, build_mlir_debuginfo in
litert_torch/backend/debuginfo of 0.10.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetrank.device_agents.android.programs.program_text import not_a_result, to_ns
from fleetrank.device_agents.contract.kernel_profile import Kernel
from fleetrank.device_agents.device_output import MAX_LINE_CHARACTERS, bounded_name, whole_number
from fleetrank.foundation.units import NS_PER_MS

_TIMED_RUNS = "Regular Benchmark Runs:"
_TABLE = "= Run Order ="
_START = "[start]"
_OPERATOR_COUNT = "Number of nodes executed: "
_DROPPED = "Dropping ProfileBuffer event"
"""Source: tflite/profiling/profile_buffer.cc, when the buffer is too small."""
_INTERNAL = "DelegateOpInvoke"
_INTERNAL_NAME = "Delegate/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    type: str
    call_ns: int
    calls: int
    name: str

    @property
    def ns(self) -> int:
        """In one run. Versions that print 0 calls have one."""
        return self.call_ns * self.calls


def read_operators(text: str) -> tuple[Kernel, ...]:
    """The nodes of the timed runs, in the order of their first call.

    Their times are means over the runs, from whole microseconds of a call.

    Raises:
        BadOutputError: the table is missing or lacks nodes.
    """
    if _DROPPED in text:
        raise not_a_result("the profile lacks operators: the program's buffer was too small")
    _before, mark, profile = text.replace("\r\n", "\n").rpartition(_TIMED_RUNS)
    tables = _tables(profile.split("\n")) if mark else []
    if not tables or not tables[0]:
        raise not_a_result("the times of operators are missing")
    # Tables of other graphs are of what a control operator of the first one calls.
    first = [row for row in tables[0] if row.type != _INTERNAL]
    inside = [row for table in tables for row in table if row.type == _INTERNAL]
    return tuple(_kernel(row) for row in _resolved(first, inside))


def _tables(lines: Sequence[str]) -> list[list[_Row]]:
    """The rows of each table `Run Order`; the program counts them after the table."""
    tables: list[list[_Row]] = []
    stated: list[int | None] = []
    previous, is_inside, has_start = "", False, False
    for line in lines:
        if _TABLE in previous:
            tables.append([])
            is_inside, has_start = True, _START in line
        elif not line.strip():
            is_inside = False
        elif is_inside:
            # Cut, not left out: the figures stand before the names, which can be long.
            tables[-1].append(_row(line[:MAX_LINE_CHARACTERS], has_start=has_start))
        elif line.startswith(_OPERATOR_COUNT):
            stated.append(whole_number(line.removeprefix(_OPERATOR_COUNT).strip()))
        previous = line
    counts = [len(table) for table in tables]
    if counts != stated:
        raise not_a_result(f"the profile has {counts[:3]} operators, of {stated[:3]}")
    return tables


def _row(line: str, *, has_start: bool) -> _Row:
    """One row; a type may contain blanks and commas, so the figures are counted from the `%`."""
    n_figures = 4 if has_start else 3
    before, mark, after = line.partition("%")
    words, rest = before.split(), after.split(maxsplit=3)
    calls = whole_number(rest[2]) if len(rest) > 2 else None
    if not mark or len(words) <= n_figures or calls is None or calls < 0:
        raise not_a_result(f"a row of the profile is {line.strip()[:120]!r}")
    try:
        call_ns = to_ns(words[-2], NS_PER_MS, "the time of an operator")
    except ValueError:
        raise not_a_result(f"the time of an operator is {words[-2][:40]!r}") from None
    calls = max(1, calls)
    to_ns(call_ns * calls, 1, "the time of an operator")
    name = rest[3] if len(rest) > 3 else ""
    return _Row(type=" ".join(words[:-n_figures]), call_ns=call_ns, calls=calls, name=name)


def _resolved(first: Sequence[_Row], inside: Sequence[_Row]) -> Iterator[_Row]:
    """Each time once: a delegate's node keeps what its own operators do not explain."""
    if not inside:
        yield from first
        return
    delegates = [row for row in first if is_delegate(row.type)]
    if not delegates:
        raise not_a_result("the profile has operators of a delegate that it does not have")
    yield from (row for row in first if not is_delegate(row.type))
    yield from inside
    left_ns = sum(row.ns for row in delegates) - sum(row.ns for row in inside)
    kept = delegates[0]
    yield _Row(type=kept.type, call_ns=max(0, left_ns), calls=1, name=kept.name)


def is_delegate(operator: str) -> bool:
    """Whether an operator is the node of a delegate, such as `TfLiteGpuDelegateV2`."""
    return "delegate" in operator.lower()


def _kernel(row: _Row) -> Kernel:
    operator = row.type
    if row.type == _INTERNAL:
        operator = row.name.removeprefix(_INTERNAL_NAME).rpartition(":")[0] or row.type
    return Kernel(
        node=bounded_name(row.name or row.type),
        module=None if is_delegate(operator) else module_of(row.name),
        operator=bounded_name(operator),
        kernel_ns=row.ns,
        calls=row.calls,
    )


def module_of(name: str) -> str | None:
    """The module in the name of a node; `None` if the file was not exported from PyTorch.

    A tensor of several nodes has the names of all; the last is of the node that computes first,
    such as a convolution with its activation. `[torch.nn.Sequential/torch.nn.ReLU_1;;
    torch.nn.Sequential/torch.nn.Conv2d_0;1]:3` gives `0`. Modules that are never called, such as a
    `ModuleList`, are not in the name: `blocks.4` is `4` here.
    """
    tensor = (
        name.removeprefix("[").partition(", ")[0].rpartition("]:")[0] or name.partition(", ")[0]
    )
    paths = [_path(one) for one in tensor.removeprefix("[").split(";") if one and not one.isdigit()]
    known = [path for path in paths if path is not None]
    return known[-1] if known else None


def _path(text: str) -> str | None:
    """`a.Net/a.b.Block_4/a.b.Linear_up` is `4.up`; `a.Net` alone is the model itself."""
    levels = [_instance(level) for level in text.split("/")]
    if levels[0] != "" or None in levels[1:] or "" in levels[1:]:
        return None
    return ".".join(level for level in levels[1:] if level)


def _instance(level: str) -> str | None:
    """The name that a module has in its parent: `a.b.Linear_up` has `up`.

    Empty for the model, which has no parent; `None` for a text that is not of this form.
    """
    place, dot, last = level.rpartition(".")
    kind, _mark, instance = last.lstrip("_").partition("_")
    if not dot or not place.replace(".", "_").isidentifier() or not kind[:1].isupper():
        return None
    return instance
