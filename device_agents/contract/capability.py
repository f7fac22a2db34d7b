"""What a runtime supports in one place: on a processor, on a GPU, or in a program for phones."""

from collections.abc import Iterable
from dataclasses import dataclass

from fleetrank.device_agents.contract.plugin_backends import PLUGIN, plugin_of
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.vocabulary import Mode, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The supported names; any other name is rejected before anything is loaded or sent.

    Attributes:
        backends: execution providers or delegates; the first is the default.
        modes: ways to execute a graph.
        precisions: precisions of artifacts; by default every precision of a file is accepted.
        option_names: runtime options; the code that reads an option checks its value.
        place: the only place where the runtime is, such as "in a browser tab"; `None` for one that
            a host loads.
    """

    backends: tuple[str, ...]
    modes: frozenset[Mode] = frozenset({Mode.EAGER})
    precisions: frozenset[Precision] = frozenset(Precision)
    option_names: frozenset[str] = frozenset()
    place: str | None = None

    @property
    def default_backend(self) -> str:
        """The backend of a sweep that names none."""
        return self.backends[0]

    def why_unsupported(self, execution: Execution, who: str, where: str = "") -> str | None:
        """Says what is not supported, or `None`.

        Args:
            execution: the requested execution.
            who: name of the runtime or program, for the sentence.
            where: such as "on a GPU", for the sentence.
        """
        if self.place not in (None, where):
            return f"{who} runs only {self.place}"
        asked = (
            (
                "backend",
                PLUGIN if plugin_of(execution.backend) else execution.backend,
                self.backends,
            ),
            ("mode", execution.mode.value, self.modes),
            ("precision", execution.precision.value, self.precisions),
            *(("option", name, self.option_names) for name, _value in execution.options),
        )
        for what, name, known in asked:
            if name not in known:
                place = f" {where}" if where else ""
                return f"{who} has no {what} {name!r}{place}; it has {listed(known)}"
        if execution.threads < 1 or execution.batch < 1:
            return "threads and batch must be at least 1"
        return execution.workload.why_no_step


def listed(names: Iterable[str]) -> str:
    """Joins names for a sentence."""
    return ", ".join(sorted(names)) or "none"


def boolean_option(execution: Execution, name: str, *, default: bool) -> bool:
    """The option's value, or `default` if it is not given.

    Raises:
        UnsupportedError: the value is not a boolean.
    """
    value = dict(execution.options).get(name, default)
    if not isinstance(value, bool):
        raise UnsupportedError(f"option {name} is {value!r}", f"set {name} to true or false")
    return value
