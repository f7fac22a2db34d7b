"""The command `fleetrank`: runs a subcommand with the shared options, returns the exit code."""

import contextlib
import gc
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetrank.analysis.errors import AnalysisError, DamagedPartError, NoDataError
from fleetrank.device_agents.errors import AgentError, MissingLibraryError, PermanentError
from fleetrank.foundation.argument_checks import ArgumentError
from fleetrank.foundation.entry_points import EntryPointError, imported
from fleetrank.foundation.errors import BadFileError, FleetError, is_rust_panic
from fleetrank.foundation.files import StorageError
from fleetrank.foundation.lease import LeaseError
from fleetrank.foundation.registry import UnknownNameError
from fleetrank.foundation.visible_text import shortened, visible
from fleetrank.foundation.wording import with_flags
from fleetrank.models.errors import LibraryError, ModelError
from fleetrank.orchestrator.cli.context import CliContext, current, set_current, settle_for_reading
from fleetrank.orchestrator.cli.silence import never_silent
from fleetrank.orchestrator.cli.visible_streams import make_streams_visible
from fleetrank.orchestrator.errors import (
    NewerSchemaError,
    NothingToDoError,
    OrchestratorError,
    UsageError,
)
from fleetrank.orchestrator.extras import missing_library
from fleetrank.orchestrator.reading_errors import damage_of, file_error


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its module beside this one and name in it, and its line in the list."""

    target: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "init": Command("setup_commands:init", "Create a workspace."),
    "doctor": Command("setup_commands:doctor", "Check whether this machine is ready."),
    "models": Command("models_command:app", "Models and their exported files."),
    "devices": Command("devices_command:app", "Registered devices."),
    "sweep": Command("sweep_command:app", "Plan, run and resume sweeps."),
    "run": Command("run_command:run", "Measure model files or named models."),
    "ab": Command("run_command:ab", "Compare two models that take turns."),
    "faster": Command(
        "faster_command:faster", "Is the faster model here also faster for your users?"
    ),
    "results": Command("results_command:app", "Stored measurements."),
    "report": Command("report_command:app", "Tables and the report page."),
    "eval": Command("eval_command:app", "How good a model is on your data."),
    "predict": Command(
        "predict_command:predict", "Predict the models of a device that has few measurements."
    ),
    "query": Command("query_command:query", "Query the measurements with SQL."),
}

EXIT_UNEXPECTED, EXIT_USAGE, EXIT_NOTHING, EXIT_INTERRUPTED = 1, 2, 4, 130
_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, EXIT_USAGE), (BadFileError, EXIT_USAGE), (ArgumentError, EXIT_USAGE),
    (UnknownNameError, EXIT_USAGE), (EntryPointError, EXIT_USAGE), (NewerSchemaError, EXIT_USAGE),
    (NothingToDoError, EXIT_NOTHING), (OrchestratorError, EXIT_UNEXPECTED),
    (StorageError, EXIT_UNEXPECTED), (MissingLibraryError, EXIT_NOTHING),
    (PermanentError, EXIT_USAGE), (LeaseError, EXIT_USAGE), (AgentError, EXIT_NOTHING),
    (LibraryError, EXIT_NOTHING), (ModelError, EXIT_USAGE),
    (NoDataError, EXIT_NOTHING), (DamagedPartError, EXIT_UNEXPECTED), (AnalysisError, EXIT_USAGE),
    (ModuleNotFoundError, EXIT_NOTHING),
)  # fmt: skip
"""Error class to exit code; the first class that matches decides."""
_LONGEST_MESSAGE, _LONGEST_REMEDY = 1400, 550
"""Characters; both limits together stay below 2,000, whatever text a file contains."""
_OBJECTS = 100_000
"""New objects between two searches for cycles; Python's own 700 are for small programs."""
_COMPLETED = "_FLEETRANK_COMPLETE"
"""The variable that a shell sets to ask for completions."""
_NAMES: Mapping[str, tuple[str, ...]] = {
    "cards/*.toml": (
        "models show", "models export", "run", "ab", "faster", "--model",
    ),
    "devices/*.yaml": (
        "devices check", "devices remove", "devices show",
        "--device", "--devices", "--source", "--target", "--here", "--on",
    ),
    "sweeps/*.yaml": ("sweep plan", "sweep run"),
    "results/sweeps/*.json": (
        "sweep status", "sweep resume", "report compare", "results delete", "results verify",
        "results export", "results exclude", "--sweep",
    ),
}  # fmt: skip
"""Files of a workspace to the commands and options that take their names without the suffix."""
_VERBOSITY = {"-v": 1, "--verbose": 1, "-vv": 2}
_LOG_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def main() -> None:
    """Runs the command line and ends the process with the exit code."""
    # A command makes many objects that live to its end; looking for cycles among them took 6 %.
    gc.set_threshold(_OBJECTS)
    make_streams_visible()
    words: list[str] = []
    with contextlib.suppress(UsageError):  # `run` reports it
        words = take_shared_options(sys.argv[1:])[1]
    settle_for_reading(words)
    with never_silent(words):
        code = run(sys.argv[1:])
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; prints errors as message and remedy."""
    context = CliContext()
    try:
        context, rest = take_shared_options(arguments)
        set_current(context)
        logging.basicConfig(
            level=_LOG_LEVELS[min(context.verbose, 2)], format="%(levelname)s %(name)s: %(message)s"
        )
        words = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
        if _COMPLETED in os.environ:
            # The shell asks what can follow these words: the command is not run.
            rest = take_shared_options(words.split()[1:])[1]
        command = typer.main.get_command(build_app(rest))
        if _COMPLETED in os.environ:
            _offer_names(command)
            rest = []
        command(rest, prog_name="fleetrank")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseException as error:
        if not (isinstance(error, Exception) or is_rust_panic(error)):
            raise
        if context.debug:
            traceback.print_exc()
        return _report(error)
    return 0


def take_shared_options(arguments: Sequence[str]) -> tuple[CliContext, list[str]]:
    """Removes `--workspace DIR`, `-v` and `--debug` wherever they occur before a `--`.

    Raises:
        UsageError: `--workspace` without a folder.
    """
    context = CliContext()
    rest: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        if word == "--":
            return context, [*rest, word, *waiting]
        if word == "--workspace" or word.startswith("--workspace="):
            folder = word.partition("=")[2] if "=" in word else next(waiting, "")
            if not folder:
                raise UsageError("--workspace needs a folder", "give --workspace DIR")
            context = replace(context, given_root=Path(folder))
        elif word in _VERBOSITY:
            context = replace(context, verbose=context.verbose + _VERBOSITY[word])
        elif word == "--debug":
            context = replace(context, debug=True)
        else:
            rest.append(word)
    return context, rest


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The app with only the requested subcommand loaded; the others are only names."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog="Exit codes: 0 done, 1 unexpected, 2 bad usage or file, 3 failed cells, "
        "4 required data, device or library missing, 5 a comparison found something slower, "
        "130 interrupted.",
    )
    app.callback()(_shared_options)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        if name != asked:
            app.command(name, help=command.help)(_never_called)
            continue
        found = imported(f"fleetrank.orchestrator.cli.{command.target}")
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=command.help)
        else:
            app.command(name, help=command.help)(found)
    return app


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        print(metadata.version("fleetrank"))
        raise typer.Exit


def _offer_names(command: Any, path: str = "") -> None:
    """Lets parameters below a command be completed with names of files in the workspace."""
    for one in command.params:
        takers = {path.strip()} if one.param_type_name == "argument" else set(one.opts)
        for pattern, known in _NAMES.items():
            if takers & set(known):
                one.shell_complete = partial(_names, pattern)
    for name, below in getattr(command, "commands", {}).items():
        _offer_names(below, f"{path} {name}")


def _names(pattern: str, _context: object, incomplete: str) -> list[Any]:
    """Names of files without their suffix; of models also the built-in ones."""
    from typer._click.shell_completion import CompletionItem

    from fleetrank.models.cards.zoo import load_cards

    found = set(load_cards(None).good) if pattern.startswith("cards") else set()
    with contextlib.suppress(UsageError):
        found |= {path.stem for path in current().workspace.root.glob(pattern)}
    # A name with other letters could be a command of the shell.
    safe = [name for name in sorted(found) if re.fullmatch(r"[A-Za-z0-9._-]+", name)]
    return [CompletionItem(name) for name in safe if name.startswith(incomplete)]


def _shared_options(
    workspace: Annotated[
        Path | None, typer.Option(help="Workspace folder (default: the current folder).")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("-v", "--verbose", help="Print progress details; -vv prints debug messages."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Measure neural networks on different kinds of devices and learn which conclusions transfer.

    These options are valid before and after every command.
    """
    # `take_shared_options` has already removed them; they are declared so that --help lists them.


def _never_called() -> None:
    """Placeholder for a command that this call does not use."""


def _explained(error: BaseException) -> BaseException:
    """Translates a system or library error into one with a remedy, if a remedy is known."""
    if isinstance(error, ModuleNotFoundError):
        return missing_library(error) or error
    folder = Path.cwd()
    with contextlib.suppress(OrchestratorError):
        folder = current().folder
    if (found := file_error(error, folder)) is not None:
        return found
    with contextlib.suppress(OrchestratorError):
        return damage_of(error, current().workspace.results) or error
    return error


def _report(error: BaseException) -> int:
    error = _explained(error)
    if isinstance(error, FleetError):
        message, remedy = error.message, error.remedy
    else:
        message = f"{type(error).__name__}: {error}"
        remedy = "this is a bug in fleetrank; --debug shows the traceback"
        if isinstance(error, ModuleNotFoundError):
            remedy = "a library is missing: pip install 'fleetrank[all]'"
    print(f"fleetrank: {_bounded(with_flags(message), _LONGEST_MESSAGE)}", file=sys.stderr)
    print(f"  -> {_bounded(with_flags(remedy), _LONGEST_REMEDY)}", file=sys.stderr)
    codes = (code for kind, code in _EXIT_CODES if isinstance(error, kind))
    return next(codes, EXIT_UNEXPECTED)


def _bounded(text: str, most: int) -> str:
    """Escaped, shortened, and indented so that no line looks like one of ours."""
    return shortened(visible(text).replace("\n", "\n    "), most)
