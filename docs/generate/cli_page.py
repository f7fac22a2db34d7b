"""The reference of the command line, read off the Typer app."""

from collections.abc import Iterator

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fleetrank.orchestrator.cli.main import COMMANDS, build_app

_EXIT_CODES = """
## Exit codes

| code | means |
|---|---|
| 0 | done |
| 1 | unexpected: a bug in fleetrank, a disk that cannot be written, damaged results |
| 2 | bad usage or a bad file; the message names file, key, nearest valid key and remedy |
| 3 | the sweep ended with failed cells |
| 4 | nothing to do it with: no device, no result, a missing library |
| 5 | `report compare` found something slower |
| 130 | interrupted; all finished repeats are kept |

Errors go to standard error as a message and a remedy; `--debug` adds the traceback.
"""


def cli_page() -> str:
    """Markdown: every command with its arguments, options and help."""
    top = get_command(build_app([]))
    parts = [
        "# Command line",
        "Made from the program itself; `fleetrank COMMAND --help` says the same.",
        "## Options of every command",
        _parameters(top),
        *(text for name in COMMANDS for text in _command_texts(name)),
        _EXIT_CODES.strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _command_texts(name: str) -> Iterator[str]:
    """A command's section, and one for each command of a group."""
    group = get_command(build_app([name]))
    if not isinstance(group, TyperGroup):
        raise TypeError("the app is not a group of commands")
    found = group.commands[name]
    yield f"## {name}"
    if not isinstance(found, TyperGroup):
        yield _section(f"fleetrank {name}", found)
        return
    yield COMMANDS[name].help
    yield from _below(name, found)


def _below(path: str, group: TyperGroup) -> Iterator[str]:
    for name, inner in sorted(group.commands.items()):
        if inner.hidden:
            continue
        yield f"### {path} {name}"
        if isinstance(inner, TyperGroup):
            yield str(inner.help)
            yield from _below(f"{path} {name}", inner)
        else:
            yield _section(f"fleetrank {path} {name}", inner)


def _section(path: str, command: object) -> str:
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{path} is not a command")
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    return "\n\n".join([f"```text\n{usage}\n```", command.help or "", _parameters(command)])


def _parameters(command: object) -> str:
    """A table of arguments and options, in the words of `--help`."""
    if not isinstance(command, TyperCommand | TyperGroup):
        raise TypeError("parameters belong to commands")
    context = command.make_context("fleetrank", [], resilient_parsing=True)
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{name}` | {_text(text)} |" for name, text in filter(None, records)]
    return "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) if rows else ""


def _text(text: str) -> str:
    """Help is plain text: a star or an angle bracket in it is not markup."""
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return escaped.replace("  [", " [")
