"""No text of a device takes a parser longer than its length explains.

`tests/fuzz` gives the same parsers hostile texts, and holds them to the typed errors.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daily import daily
from device_parsers import COVERED, OTHER_TEXT, PROBES, TOOLS, Parser

import fleetrank.device_agents
from fleetrank.device_agents.device_output import MAX_LINE_CHARACTERS, MAX_PROBE_BYTES
from fleetrank.device_agents.errors import AgentError

MAX_RATIO = 100
"""Of the processor time that one look at each character takes, measured in the same moment: linear
parsers take up to 40, and what is not linear takes thousands at the bound of a probe."""
FIRST_BYTES = 4096
"""Shorter than the bound of a probe: what is not linear fails here, and not after an hour."""
UNITS = (
    "1", " ", "\t", "a", "-", ".", ":", "\r", "\n", "=", "1 ", "a ", "a:", "a=1", " \n", "\r\n",
    "0.1", "1%", "a1:", "é", "{", "1,", "/", "\0",
)  # fmt: skip
MAX_PIECES, FEW_PIECES = 12, 1
"""Of a known text, to build others from; a few in `make test` find most of what is not linear."""
SIGNS_OF_PARSING = re.compile(r"^import re$|device_output import", re.M)


def _source(module: str) -> str:
    path = Path(fleetrank.device_agents.__path__[0]).joinpath(*module.split(".")[2:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def heads_of(sample: str) -> list[str]:
    """Beginnings of lines that a parser knows, up to each place where a figure may follow."""
    heads = {""}
    for line in sample.split("\n"):
        heads.update(line[: found.end()] for found in re.finditer(r"[:=(]\s?|\s", line[:120]))
    return sorted(heads)


def _some(pieces: list[str], n_pieces: int) -> list[str]:
    """At most twice `n_pieces`, spread over all."""
    return pieces[:: 1 + len(pieces) // n_pieces]


def worst_texts(sample: str, n_bytes: int, n_pieces: int) -> Iterator[str]:
    """Texts of `n_bytes`: as one line, and as lines just below the bound of a line."""
    heads, lines = (_some(one, n_pieces) for one in (heads_of(sample), sample.split("\n")))
    for unit in (*UNITS, *heads, *lines):
        if unit:
            yield (unit * (n_bytes // len(unit) + 1))[:n_bytes]
            line = (unit * MAX_LINE_CHARACTERS)[: MAX_LINE_CHARACTERS - 2]
            yield (f"{line}x\n" * (n_bytes // MAX_LINE_CHARACTERS + 1))[:n_bytes]
    for head in heads:
        for unit in ("1", " ", "a", "1 ", "\n", "\r"):
            body = unit * (n_bytes // len(unit))
            yield f"{head}{body}"[: n_bytes - 1] + "x"
            line = f"{head}{body}"[: MAX_LINE_CHARACTERS - 2]
            yield (f"{line}x\n" * (n_bytes // MAX_LINE_CHARACTERS + 1))[:n_bytes]


def ratio_of(work: Callable[[], object], n_bytes: int) -> float:
    """Processor time over that of a look at each of `n_bytes` characters, the least of six.

    Fewer characters count as `FIRST_BYTES`, because a call costs something.
    """
    yardstick = "1" * max(n_bytes, FIRST_BYTES)
    least = float("inf")
    for _ in range(6):  # a neighbour on the same core slows some of them down
        started = time.process_time()
        for character in yardstick:
            character.isdigit()
        looked = time.process_time()
        if looked == started:
            continue  # the clock of a virtual machine stood still: there is nothing to compare with
        with suppress(AgentError):  # a refusal is an answer
            work()
        least = min(least, (time.process_time() - looked) / (looked - started))
        if least < MAX_RATIO / 2:
            break
    return least


def longest(parser: Parser, texts: Iterable[str]) -> tuple[float, str]:
    """The worst of all texts, and how it begins."""
    found = (0.0, "")
    for text in texts:
        ratio = ratio_of(lambda text=text: parser(text), len(text))
        found = max(found, (ratio, repr(text[:60])))
        if ratio > MAX_RATIO:
            break
    return found


SIZES = daily([(FIRST_BYTES, FEW_PIECES), (MAX_PROBE_BYTES, MAX_PIECES)], FIRST_BYTES)


@pytest.mark.parametrize(("n_bytes", "n_pieces"), SIZES)
@pytest.mark.parametrize("name", [*PROBES, *TOOLS])
def test_no_text_takes_long(name: str, n_bytes: int, n_pieces: int) -> None:
    parser, sample = (PROBES | TOOLS)[name]
    ratio, text = longest(parser, worst_texts(sample, n_bytes, n_pieces))
    assert ratio < MAX_RATIO, f"{ratio:.0f} looks at each of {n_bytes} bytes of {text}"


def modules() -> Iterator[tuple[str, str]]:
    """Every module's name without that of the package, and its source."""
    for module in pkgutil.walk_packages(
        fleetrank.device_agents.__path__, "fleetrank.device_agents."
    ):
        yield module.name.removeprefix("fleetrank.device_agents."), _source(module.name)


def patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Every compiled expression of every module, and whether it is looked for inside a text."""
    for module, source in modules():
        if "import re\n" not in source:
            continue
        for name, value in vars(
            importlib.import_module(f"fleetrank.device_agents.{module}")
        ).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                is_searched = re.search(rf"\b{name}\.(search|find|sub)", source) is not None
                yield f"{module}.{name}", value, is_searched


@pytest.mark.parametrize(
    ("name", "pattern", "is_searched"), [pytest.param(*it, id=it[0]) for it in patterns()]
)
def test_no_expression_backtracks(name: str, pattern: re.Pattern[str], is_searched: bool) -> None:
    look = pattern.search if is_searched else pattern.fullmatch
    pieces = [piece for piece in re.findall(r"[A-Za-z_ =:,.(]+", pattern.pattern) if piece.strip()]
    for piece in ("", *_some(pieces, FEW_PIECES)):
        for unit in (*UNITS, piece):
            if not unit:
                continue
            line = (piece + unit * MAX_LINE_CHARACTERS)[:MAX_LINE_CHARACTERS]
            for text in (line, f"{line}\n" * 4, (piece + unit) * (4096 // len(piece + unit))):
                ratio = ratio_of(lambda text=text: look(text), len(text))
                assert ratio < MAX_RATIO, f"{name}: {text[:60]!r}"


def test_every_module_that_parses_is_known_here() -> None:
    parsing = {name for name, source in modules() if SIGNS_OF_PARSING.search(source)}
    assert parsing == COVERED | set(OTHER_TEXT), "add its parser to tests/makers/device_parsers.py"
