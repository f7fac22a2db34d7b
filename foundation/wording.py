"""Words in messages: counts, durations, the name that a user probably meant, and choices.

A message names a choice as `` `source=` ``, `` `quantity=memory` `` or `` `set k=3` ``: it is an
argument or a field in Python, and a field of a form. `with_flags` makes it an option of a command.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

_LONGEST = 100
"""Maximum letters to compare, because the time grows with their square."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ends with `:name` or is most similar; `None` if no name is similar."""
    import difflib  # not earlier: the measuring worker imports this module and never needs it

    names = list(known)
    matches = [one for one in names if one.endswith(f":{name}")]
    matches += difflib.get_close_matches(name[:_LONGEST].lower(), names, n=1, cutoff=0.5)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """`did you mean 'resnet18'? ` before the rest of a remedy; empty if no name is similar.

    With `otherwise` it is the whole remedy, and `otherwise` if no name is similar.
    """
    near = nearest(name, known)
    if otherwise is not None:
        return f"did you mean '{near}'?" if near else otherwise
    return f"did you mean '{near}'? " if near else ""


def count_of(n: int, noun: str, plural: str | None = None) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`; less than a second is `1 s`."""
    whole = round(seconds) or int(seconds > 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def few_of(names: Sequence[str], most: int) -> str:
    """The first names as a list for a sentence, and how many more there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


_CHOICE = re.compile(r"`(?:set )?(?P<name>[a-z][a-z_]*)=(?P<value>[^`\n]*)`")
_ONE = r"`(?:set )?[a-z][a-z_]*=[^`\n]*`"
_COMMAND = re.compile(rf"`(?P<command>fleetrank [^`]*)` with (?P<choices>{_ONE}(?: and {_ONE})*)")


def with_flags(text: str) -> str:
    """The text for a terminal: `` `source_tier=cpu` `` becomes `--source-tier cpu`.

    `` `set k=3` `` becomes `--k 3`, `` `force=true` `` becomes `--force`, and a command takes
    it in: `` `fleetrank query` with `tables=true` `` becomes `` `fleetrank query --tables` ``. More
    choices of a command follow with `and`. A value is quoted as a shell needs it.
    """

    def command(found: re.Match[str]) -> str:
        options = (_flag(choice) for choice in _CHOICE.finditer(found["choices"]))
        return f"`{' '.join((found['command'], *options))}`"

    return _CHOICE.sub(_flag, _COMMAND.sub(command, text))


def _flag(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    option = f"--{name.replace('_', '-')}"
    return option if value in ("", "true") else f"{option} {shlex.quote(value)}"
