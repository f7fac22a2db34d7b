"""The words of each surface, to hold against recorded files: `python tests/makers/golden_texts.py`.

A change of wording is one changed file to look through; tests elsewhere assert kinds, figures and
names.
"""

import difflib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fleet_rows import write_results
from golden_tables import Tables, tables_of
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.tables.table import Table
from fleetrank.orchestrator import doctor_host
from fleetrank.orchestrator.cli.main import COMMANDS, build_app
from fleetrank.orchestrator.doctor import Finding
from fleetrank.orchestrator.doctor_software import LIBRARIES, judge_library

GOLDEN = Path(__file__).parents[1] / "data/golden"
COMMAND = "PYTHONPATH=tests/makers .venv/bin/python tests/makers/golden_texts.py"
_WIDTH = 100
_GIB = 1024**3


def help_text() -> str:
    """`--help` of every command."""
    parts = [_help("fleetrank", get_command(build_app([])))]
    for name in COMMANDS:
        group = get_command(build_app([name]))
        assert isinstance(group, TyperGroup)
        parts += _helps(f"fleetrank {name}", group.commands[name])
    return "\n".join(parts)


def _helps(path: str, command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield _help(path, command)
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            if not inner.hidden:
                yield from _helps(f"{path} {name}", inner)


def _help(path: str, command: TyperCommand | TyperGroup) -> str:
    context = command.make_context(
        path, [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    return f"=== {path}\n{command.get_help(context)}\n"


def notes_text() -> str:
    """Notes and explanation of every table of `write_results` with its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        return notes_of(tables_of(write_results(Path(folder))))


def notes_of(tables: Tables) -> str:
    """The same of tables that are made."""
    return "\n".join("\n".join(_notes(*one)) + "\n" for one in tables.items())


def _notes(words: str, table: Table | AnalysisError) -> Iterator[str]:
    yield f"=== {words}"
    if isinstance(table, AnalysisError):
        yield f"{type(table).__name__}: {table.message}\n-> {table.remedy}"
        return
    yield table.title
    yield from (f"note: {note}" for note in table.notes)
    yield from (f"explanation: {text}" for text in table.explanation)


def doctor_text() -> str:
    """Every message of the doctor about a host and a library, at each level."""
    return "".join(_finding(one) for one in _findings())


def _findings() -> Iterator[Finding]:
    disk = doctor_host.MIN_FREE_DISK_BYTES
    yield from map(doctor_host.judge_disk, (disk, disk - 1, disk // 2 - 1))
    yield from map(doctor_host.judge_memory, (8 * _GIB, _GIB))
    yield from (doctor_host.judge_cores(*one) for one in ((2, 2, None), (2, 2, 1.5), (1, 2, None)))
    yield from map(doctor_host.judge_governor, (None, "performance", "powersave"))
    yield from map(doctor_host.judge_load, (0.05, 0.5))
    yield from map(doctor_host.judge_niceness, (0, 15))
    for abi, has_filter in ((7, True), (1, False), (None, True)):
        yield doctor_host.judge_confinement(abi, has_filter=has_filter)
    for library in LIBRARIES:
        yield judge_library(library, None, None)
    yield judge_library(LIBRARIES[0], "1.0", None)
    yield judge_library(LIBRARIES[0], "1.0", "OSError: no such file")


def _finding(found: Finding) -> str:
    remedy = "" if found.remedy is None else f"-> {found.remedy}\n"
    return f"{found.level.value} {found.check}: {found.message}\n{remedy}"


SURFACES: Mapping[str, Callable[[], str]] = {
    "help.txt": help_text,
    "notes.txt": notes_text,
    "doctor.txt": doctor_text,
}


def hold(name: str, now: str) -> None:
    """Compares the words of a surface with its recorded file.

    Raises:
        AssertionError: they differ; it shows where.
    """
    recorded = (GOLDEN / name).read_text(encoding="utf-8")
    lines = difflib.unified_diff(
        recorded.splitlines(), now.splitlines(), f"recorded {name}", "now", lineterm="", n=1
    )
    if shown := "\n".join(lines):
        raise AssertionError(f"{shown}\n\nIf these words are right: {COMMAND}")


if __name__ == "__main__":
    for name, make in SURFACES.items():
        (GOLDEN / name).write_text(make(), encoding="utf-8")
