"""The part of `PhoneRunner.why_unsupported` that is the same for every program."""

from device_agents.android.runners.runner import PhoneRunner
from device_agents.task import Execution
from device_agents.vocabulary import Mode


def why_unknown(runner: PhoneRunner, execution: Execution) -> str | None:
    """Says which name or number of this the program does not know, or `None`."""
    if execution.backend not in runner.backends:
        known = ", ".join(sorted(runner.backends))
        return f"{runner.tool} has no backend {execution.backend!r}; it has {known}"
    if execution.mode is not Mode.EAGER:
        return f"{runner.tool} has no mode {execution.mode.value!r}; it has eager"
    for option, _value in execution.options:
        if option not in runner.option_names:
            known = ", ".join(sorted(runner.option_names)) or "none"
            return f"{runner.tool} has no option {option!r}; it has {known}"
    if execution.threads < 1 or execution.batch < 1:
        return "threads and batch are at least 1"
    return None
