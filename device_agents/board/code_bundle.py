"""Packs the measuring code for a board: the worker with all it imports, in one compressed file.

Its zip file is compressed as a whole: modules resemble each other, so this takes a fifth less.
"""

import ast
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fleetrank.device_agents
import fleetrank.foundation

_PREFIX = "fleetrank."
_ROOTS = (
    "fleetrank.device_agents.worker.__main__",
    "fleetrank.device_agents.board.there.host_process",
)
_NAMED = ("fleetrank.device_agents.runtimes", "fleetrank.device_agents.profiling")
"""Their modules are named in tables, not imported."""
_MAIN = """\
import os
import sys

# Also where the environment takes a program's folder off the path (PYTHONSAFEPATH).
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if sys.argv[1:] == ["worker"]:
    from fleetrank.device_agents.worker.__main__ import main
elif sys.argv[1:] == ["join"]:
    from fleetrank.device_agents.board.there.join import main
else:
    from fleetrank.device_agents.board.there.host_process import main
sys.exit(main())
"""
_MOMENT = (2020, 1, 1, 0, 0, 0)
"""Of each file, so that equal code gives an equal file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBundle:
    """A zip file under zlib; its `__main__.py` starts the worker, the host, or what joins it."""

    content: bytes
    sha256: str


@cache
def code_bundle() -> CodeBundle:
    """The code of this installation; the same for the life of the process."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, text in (("__main__.py", _MAIN), *_files()):
            archive.writestr(zipfile.ZipInfo(path, _MOMENT), text)
    content = zlib.compress(stream.getvalue(), 9)
    return CodeBundle(content=content, sha256=hashlib.sha256(content).hexdigest())


def _files() -> Iterator[tuple[str, str]]:
    modules = measuring_modules()
    for name, path in sorted(modules.items()):
        yield f"{name.replace('.', '/')}.py", without_notes(path.read_text(encoding="utf-8"))
    for package in sorted(_packages(modules) - set(modules)):
        yield f"{package.replace('.', '/')}/__init__.py", ""


def _packages(modules: dict[str, Path]) -> set[str]:
    """The packages of these modules; they have docstrings only, so they are sent empty."""
    found = set()
    for name in modules:
        parts = name.split(".")
        found |= {".".join(parts[:length]) for length in range(1, len(parts))}
    return found


def without_notes(text: str) -> str:
    """A module's text with empty docstrings and without comments: it travels.

    The number of each line stays, so an error on a board names the line of our own file.
    """
    lines = text.split("\n")
    lines = ["" if line.lstrip().startswith("#") else line for line in lines]
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [f'{" " * node.col_offset}""', *[""] * (last - first - 1)]
    return "\n".join(lines)


@cache
def measuring_modules() -> dict[str, Path]:
    """Every module that the worker or the host can import, by name; packages left out."""
    waiting = [*_ROOTS, *_named_modules()]
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        path = _path_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        waiting += _imports_of(path)
    return found


def _named_modules() -> Iterator[str]:
    root = Path(fleetrank.device_agents.__path__[0])
    for package in _NAMED:
        folder = root / package.rpartition(".")[2]
        for path in folder.rglob("*.py"):
            if path.name != "__init__.py":
                inside = path.relative_to(folder).with_suffix("")
                yield ".".join((package, *inside.parts))


def _imports_of(path: Path) -> Iterator[str]:
    """Names that a module imports anywhere, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith(_PREFIX))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PREFIX):
            yield str(node.module)
            # A name may be a module of that package.
            yield from (f"{node.module}.{one.name}" for one in node.names)


def _path_of(name: str) -> Path | None:
    """The file of a module of these two packages; `None` for a package, which is a folder."""
    for package in (fleetrank.device_agents, fleetrank.foundation):
        if name.startswith(f"{package.__name__}."):
            inside = name[len(package.__name__) + 1 :].split(".")
            path = Path(package.__path__[0]).joinpath(*inside).with_suffix(".py")
            return path if path.is_file() else None
    return None
