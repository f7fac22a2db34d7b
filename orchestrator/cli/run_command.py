"""`fleetrank run` and `fleetrank ab`: sweeps made from options, without a sweep file.

`run` measures models, and on request where their time goes and what several processes do together.
`ab` lets two models take turns.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
import yaml

from fleetrank.analysis.stopping_rule import SweepQuestion
from fleetrank.analysis.stored.selection import CHANGE_ALPHA, MARGIN
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Form, Precision, Runtime
from fleetrank.orchestrator.cli.cell_summary import cell_rows, left_out_notes
from fleetrank.orchestrator.cli.context import current, settle_workspace
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.cli.options import runtime_option, share
from fleetrank.orchestrator.cli.report_command import print_in_form, selected_table
from fleetrank.orchestrator.cli.sweep_display import (
    EXIT_FAILED_CELLS,
    EXIT_INTERRUPTED,
    EXIT_SLOWER,
    conclude,
    noisy_lines,
    result_stream,
    shown_cells,
    shown_progress,
)
from fleetrank.orchestrator.cli.sweep_options import NewSweepOptions, Progress, with_sweep_options
from fleetrank.orchestrator.errors import NothingToDoError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from fleetrank.analysis.tables.table import Table
    from fleetrank.models.cards.card import ModelCard
    from fleetrank.orchestrator.progress_events import SweepFinished
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions
    from fleetrank.orchestrator.sweep.sweep_setup import Setup
    from fleetrank.orchestrator.workspace.workspace import Workspace

_MOST_DIGITS = 10
_DEFAULT_RUNTIME = Runtime.ONNX
_Threads = Annotated[int, typer.Option(min=1, help="Threads inside one operator.")]
_MARGIN = typer.Option(parser=share, metavar="SHARE", help="Largest change of no interest, as 2%.")
_Budget = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="With --until-decided: time after which no further round begins, as 90s or 20m.",
    ),
]
_MOST_ROUNDS_OF_TWO = 50
_MaxTime = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        metavar="SECONDS",
        help="Most time of one process, each for warm-up and for timed runs; short times are less "
        "exact, and flagged (default: until it is exact, 20 at most).",
    ),
]


@with_sweep_options(NewSweepOptions)
def run(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="A file (.onnx, .tflite, .pt2, .pte, ...), a Hugging Face folder with a "
            "config.json, or the name of a model; NAME:int8 is one precision of it.",
        ),
    ],
    *,
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--devices", "--device", help="Devices, separated by commas; may be repeated."
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Fresh processes; fewer than 5 give no interval (default: 5; with "
            "--until-decided at most 20).",
        ),
    ] = None,
    until_decided: Annotated[
        SweepQuestion | None,
        typer.Option(
            help="Measure until this is decided about the models of each platform; models without "
            "an open decision stop.",
        ),
    ] = None,
    margin: Annotated[float, _MARGIN] = MARGIN,
    budget: _Budget = "20m",
    max_time: _MaxTime = None,
    runtime: Annotated[
        list[Runtime] | None,
        runtime_option("Runtime of a named model; may be repeated. A file has one."),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Execution provider or delegate of each --runtime, such as builtin."),
    ] = None,
    threads: _Threads = 1,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            help="What one inference of a language model does, such as decode@128; may be "
            "repeated.",
        ),
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option("--axis", metavar="NAME=SIZE", help="Size of a free axis; may be repeated."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=RULE",
            help="Values of an input of a file: normal, ids:30522, constant:1, range:0,255 or "
            "file:values.npy; may be repeated.",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also find out which part of a model takes the time.")
    ] = False,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas", metavar="N,N,...", help="Also run this many processes at once, as 1,2,4."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time that processes of --replicas run back to back.")
    ] = 10.0,
    options: NewSweepOptions,
    as_json: AsJson = False,
) -> None:
    """Measure models, each a file or named, and print their figures.

    Latencies are measured first; profiles and sets of processes follow in processes of their own
    and have their tables. The result is a sweep like any other. A file gets a card in cards/, which
    you can complete. It needs no workspace: without one, a folder in your user data is used.
    """
    from fleetrank.device_agents.contract.task import RepeatLimits
    from fleetrank.orchestrator.workspace.input_rules import axis_sizes

    workspace, sizes = settle_workspace(), axis_sizes(axis or ())
    names, _, of_models = _models_of(workspace, models, inputs or ())
    cards = _cards(workspace, names)
    for card in cards:
        _check_axes(card, sizes)
    hints = [hint for card in cards for hint in _hints(card, sizes)]
    print("".join(f"note: {hint}\n" for hint in hints), end="", file=sys.stderr)
    if backend is not None and not runtime:
        raise UsageError(f"--backend {shortened(backend)} is of no runtime", "give --runtime too")
    content: dict[str, object] = {
        "name": "run",
        "models": names,
        **of_models,
        "devices": [one for text in devices or ["local-cpu"] for one in _words(text)],
        "runtimes": [one.value for one in runtime or ()] or _runtimes_of(cards, _DEFAULT_RUNTIME),
        "threads": [threads],
        "batch": sizes.pop("batch", [1]),
        "axes": sizes,
        **_counted(repeats, until_decided, margin, budget),
        **_limited(max_time),
    }
    sides = {"components": profile, "scaling/replicas": replicas is not None}
    if workload or not any(sides.values()):
        content |= _workloads_for(cards, workload or ())
    else:
        content |= _one_workload(cards, None)
    if backend is not None:
        content["backends"] = {one.value: [backend] for one in runtime or ()}
    if profile:
        content["profile"] = True
    if replicas is not None:
        content["replicas"] = {"processes": _numbers(replicas), "run_s": seconds}
        content["limits"] = {"timeout_s": RepeatLimits().timeout_s + seconds}
    outcome, run_options = _measured(content, options, as_json=as_json, check=_check_sides)
    stream = None if as_json else result_stream(options.progress)
    if not outcome.is_interrupted:
        asked = [table for table, is_asked in sides.items() if is_asked]
        _print_cells(outcome.sweep_id, names, stream, asked)
    conclude(outcome, run_options, stream, has_printed_cells=True)
    if outcome.n_profile_failed or outcome.n_sets_failed:
        raise typer.Exit(EXIT_FAILED_CELLS)


@with_sweep_options(NewSweepOptions)
def ab(
    a: Annotated[str, typer.Argument(help="A model file, or the name of a model.")],
    b: Annotated[str, typer.Argument(help="Another; NAME:int8 is one precision of a model.")],
    *,
    device: Annotated[
        str, typer.Option(help="Device that can hold both models at once.")
    ] = "local-cpu",
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Fresh processes of each model (default: 10; with --until-decided at most "
            f"{_MOST_ROUNDS_OF_TWO}).",
        ),
    ] = None,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Stop as soon as the order is decided.")
    ] = False,
    budget: _Budget = "20m",
    max_time: _MaxTime = None,
    runtime: Annotated[
        Runtime, runtime_option("Runtime of a named model; a file has its own.")
    ] = _DEFAULT_RUNTIME,
    threads: _Threads = 1,
    workload: Annotated[
        str | None,
        typer.Option(help="What one inference of a language model does, such as decode@128."),
    ] = None,
    margin: Annotated[float, _MARGIN] = MARGIN,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of order and inputs.")] = 0,
    options: NewSweepOptions,
    as_json: AsJson = False,
) -> None:
    """Compare two models that take turns in blocks on one device.

    Exit code 5: B is slower by the margin or more. The measurements are a sweep like any other.
    Without a workspace, a folder in your user data is used.
    """
    from fleetrank.analysis.arrays.two_samples import Limits, Verdict
    from fleetrank.analysis.comparison.rounds_comparison import compare_rounds, rounds_sentences
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements

    workspace = settle_workspace()
    names, (first, second), of_models = _models_of(workspace, (a, b))
    if first == second:
        raise UsageError(f"{a} and {b} are the same model", "give two different models")
    cards = _cards(workspace, names)
    content = {
        "name": "ab",
        "models": names,
        **of_models,
        "devices": [device],
        "runtimes": _runtimes_of(cards, runtime),
        "threads": threads,
        **_counted(
            rounds or (_MOST_ROUNDS_OF_TWO if until_decided else 10),
            SweepQuestion.ORDER if until_decided else None,
            margin,
            budget,
        ),
        "seed": seed,
        "rounds": {"cells": 2, "mix_platforms": True},
        **_limited(max_time),
        **_one_workload(cards, workload),
    }
    outcome, _ = _measured(content, options, as_json=as_json)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    limits = Limits(margin=margin, alpha=CHANGE_ALPHA)
    rows = load_measurements(workspace.results, sweep=outcome.sweep_id, origins=ORIGINS)
    found = compare_rounds(rows, (first, second), limits)
    if as_json:
        print(json_text({"sweep_id": outcome.sweep_id, **found.as_json()}, indent=2))
    else:
        noisy = noisy_lines(workspace.results, outcome.sweep_id)
        sentences = ("", *rounds_sentences(found), *noisy, *_elsewhere(rows, (first, second)))
        print("\n".join(sentences), file=result_stream(options.progress))
    if outcome.n_failed:
        print(f"details: fleetrank sweep status {outcome.sweep_id}", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED_CELLS)
    if found.verdict is Verdict.SLOWER:
        raise typer.Exit(EXIT_SLOWER)


def _elsewhere(rows: "pl.LazyFrame", models: tuple[str, str]) -> tuple[str, ...]:
    """Whether the order is the same on other platforms; empty where none measured both."""
    import fleetrank
    from fleetrank.analysis.statistics.pairs.pair_answer import pair_sentences
    from fleetrank.analysis.statistics.pairs.pair_orders import Order
    from fleetrank.analysis.stored.selection import PRECISION_OF_KEY, Selection
    from fleetrank.orchestrator.workspace.model_argument import given_precision

    here = rows.select("platform_key").first().collect().item()
    if given_precision(models[0])[1]:
        here = re.sub(PRECISION_OF_KEY, r"\1*", here)  # a platform of both precisions
    try:
        answer = fleetrank.faster(
            current().workspace.results, *models, selection=Selection(source=here)
        )
    except fleetrank.FleetError:  # such as two models that no table can compare
        return ()
    is_known = any(one.order is not Order.NOT_MEASURED for one in answer.targets)
    return ("", pair_sentences(answer)[0]) if is_known else ()


def _measured(
    content: Mapping[str, object],
    options: NewSweepOptions,
    *,
    as_json: bool,
    check: "Callable[[Setup], None] | None" = None,
) -> "tuple[SweepFinished, RunOptions]":
    """Runs the sweep of a specification; without Ray, unless a cluster is named.

    Raises:
        UsageError: a value is not valid; the message names its key.
    """
    from fleetrank.orchestrator.sweep.sweep_run import WrittenSpec, start_sweep
    from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec, with_checkpoints
    from fleetrank.orchestrator.workspace.yaml_file import parse_content

    name = "the options"
    written = WrittenSpec(
        spec=with_checkpoints(parse_content(name, SweepSpec, dict(content)), Path(name)),
        origin=shlex.join(["fleetrank", *sys.argv[1:]]),
        text=yaml.safe_dump(dict(content), sort_keys=False),
    )
    with shown_progress(Progress.NONE if as_json else options.progress) as subscribers:
        run_options = options.run_options(subscribers, is_inline=options.cluster is None)
        return start_sweep(current().workspace, written, run_options, check=check), run_options


def _models_of(
    workspace: "Workspace", given: Sequence[str], rules: Sequence[str] = ()
) -> tuple[list[str], list[str], dict[str, object]]:
    """The names of models, each as given, such as `NAME:int8`, and the keys about single ones.

    A model that is given twice, once without a precision, is meant in fp32 there.
    """
    from fleetrank.orchestrator.workspace.model_argument import given_precision, model_named

    parts = [given_precision(one) for one in given]
    names = [model_named(workspace, path, rules) for path, _ in parts]
    words: dict[str, list[str | None]] = {name: [] for name in names}
    for name, (_, word) in zip(names, parts, strict=True):
        words[name].append(word)
    precise = {
        name: [word or Precision.FP32.value for word in of] for name, of in words.items() if any(of)
    }
    exact = [
        f"{name}:{word or Precision.FP32}" if name in precise else name
        for name, (_, word) in zip(names, parts, strict=True)
    ]
    return (
        list(words),
        exact,
        {
            "precision_of": precise,
            "weights_of": _published_weights(names, [path for path, _ in parts]),
        },
    )


def _counted(
    repeats: int | None, question: SweepQuestion | None, margin: float, budget: str
) -> dict[str, object]:
    """The keys `repeats` and `until` of a specification."""
    given: dict[str, object] = {} if repeats is None else {"repeats": repeats}
    if question is None:
        return given
    until = {"question": question.value, "margin": margin, "budget": budget}
    return {**given, "until": until}


def _limited(max_time_s: float | None) -> dict[str, object]:
    """The key `measure` of a specification; empty without a limit."""
    from fleetrank.device_agents.contract.task import MeasurePolicy

    if max_time_s is None:
        return {}
    usual = MeasurePolicy()
    names = ("min_warmup_s", "max_warmup_s", "max_time_s", "energy_s")
    return {"measure": {name: min(getattr(usual, name), max_time_s) for name in names}}


def _published_weights(names: Sequence[str], given: Sequence[str]) -> dict[str, object]:
    """The key `weights_of`: the weights that lie in the folders among the given models."""
    from fleetrank.orchestrator.workspace.model_argument import is_published_folder

    return {
        name: {"kind": "checkpoint", "path": str(Path(model).absolute())}
        for name, model in zip(names, given, strict=True)
        if is_published_folder(model) and any(Path(model).glob("*.safetensors"))
    }


def _hints(card: "ModelCard", sizes: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """What a person did not choose about the inputs of a file: its batch, and values of ids.

    Raises:
        UsageError: the file fixes another batch.
    """
    from fleetrank.foundation.vocabulary import Format
    from fleetrank.models.cards.card import Source
    from fleetrank.models.cards.inputs import BATCH, has_batch
    from fleetrank.models.errors import CardError
    from fleetrank.models.file_inputs import inputs_of

    format_ = Path(card.entry).suffix[1:].lower()
    if card.source is not Source.FILE or format_ not in set(Format):
        return
    try:
        inputs = card.inputs or inputs_of(Path(card.entry), Format(format_))
    except CardError:
        return  # the export says what is wrong with the file
    for batch in sizes.get(BATCH, [1]):
        first = [one.shape[0] for one in inputs if len(one.shape) >= (1 if batch > 1 else 4)]
        if all(isinstance(size, int) for size in first) and first and batch not in first:
            raise UsageError(
                f"{card.name} is made for a batch of {first[0]}, not {batch}",
                f"give --axis batch={first[0]}, or export it with another or a dynamic one",
            )
    if BATCH not in sizes and has_batch(inputs):
        yield f"the batch of {card.name} is free, measured at 1; --axis batch=1,8 measures others"
    for one in inputs:
        if one.dtype in {"int32", "int64"} and one.values is None:
            yield (
                f"all values of its input {one.name} are 0 or 1; for token ids add "
                f"--input {one.name}=ids:30522, with your vocabulary"
            )


def _check_sides(setup: "Setup") -> None:
    """Ends before anything is measured if nothing of what was asked beside latencies can be.

    Raises:
        NothingToDoError: no cell can be profiled, or no set can run; with the reasons.
    """
    from fleetrank.orchestrator.sweep.sweep_session import profiles_of, sets_of

    spec = setup.spec
    for is_asked, side_of, nothing, remedy in (
        (spec.profile, profiles_of, "nothing can be profiled", "device, runtime or workload"),
        (
            spec.replicas is not None,
            sets_of,
            "no set of processes can run",
            "device, model, workload or number of processes",
        ),
    ):
        side = side_of(setup, setup.plan)
        if is_asked and not side.cells:
            reasons = "; ".join(dict.fromkeys(one.reason for one in side.skipped))
            raise NothingToDoError(f"{nothing}: {reasons}", f"name another {remedy}")


def _check_axes(card: "ModelCard", sizes: Mapping[str, Sequence[int]]) -> None:
    """Checks that every free axis has a size and that every given axis exists."""
    from fleetrank.models.cards.input_size import INPUT_SIZE, takes_images
    from fleetrank.models.cards.inputs import BATCH, axis_names

    known = axis_names(card.inputs, takes_tokens=bool(card.workloads))
    free = (BATCH, *known, *((INPUT_SIZE,) if takes_images(card) else ()))
    if unknown := [one for one in sizes if one not in free]:
        raise UsageError(
            f"{card.name} has no free axis '{unknown[0]}'", f"its free axes: {', '.join(free)}"
        )
    if missing := [one for one in known if one not in sizes and one not in dict(card.axes)]:
        wanted = " ".join(f"--axis {one}=128" for one in missing)
        raise UsageError(
            f"no size is given for the free axis {', '.join(missing)} of {card.name}",
            f"add {wanted}, with your sizes",
        )


def _cards(workspace: "Workspace", names: Iterable[str]) -> "list[ModelCard]":
    """The cards of the models.

    Raises:
        CardError: a model is unknown or its card is not valid.
    """
    from fleetrank.models.cards.zoo import load_cards

    return list(map(load_cards(workspace.cards).find, names))


def _workloads_for(cards: "Iterable[ModelCard]", given: Sequence[str]) -> dict[str, list[str]]:
    """The key `workloads` of a specification; empty without a given workload.

    Raises:
        UsageError: a model takes no tokens.
    """
    for card in cards if given else ():
        if not card.workloads:
            raise UsageError(
                f"{card.name} takes no tokens, so its only workload is image",
                "leave the workload out, or name a language model",
            )
    return {"workloads": list(given)} if given else {}


def _one_workload(cards: "Sequence[ModelCard]", given: str | None) -> dict[str, list[str]]:
    """The key `workloads` for a comparison, which needs one; empty for models without tokens.

    Without a given workload it is `decode@128`, or the usual one that the first model answers.
    Raises as `_workloads_for`.
    """
    from fleetrank.orchestrator.plan.executions import USUAL_WORKLOADS

    answered = [str(one) for one in reversed(USUAL_WORKLOADS) if one.kind in cards[0].workloads]
    chosen = given if given is not None else next(iter(answered), None)
    return _workloads_for(cards, [] if chosen is None else [chosen])


def _runtimes_of(cards: "Iterable[ModelCard]", default: Runtime) -> list[str]:
    """The runtimes of the files among the models; without a file, the default."""
    from fleetrank.foundation.formats import runtime_of
    from fleetrank.models.cards.card import Source, formats_of

    files = [card for card in cards if card.source is Source.FILE]
    own = {runtime_of(formats_of(card)[0]) for card in files}
    return sorted(runtime.value for runtime in own or {default})


def _print_cells(
    sweep_id: str, names: Sequence[str], stream: TextIO | None, tables: Sequence[str]
) -> None:
    """Prints the figures and tables as text; without a stream as JSON."""
    from fleetrank.analysis.tables.formats import render

    rows = cell_rows(current().workspace.results, sweep_id)
    if stream is None:
        content = {"sweep_id": sweep_id, "models": list(names), "cells": rows}
        for name in tables:
            _, _, key = name.rpartition("/")
            content[key] = json.loads(render(_table_of(sweep_id, name), Form.JSON))
        print(json_text(content, indent=2))
        return
    print(file=stream)
    with redirect_stdout(stream):
        print_table(shown_cells(rows), as_json=False)
    for reason in dict.fromkeys(row["interval_reason"] for row in rows):
        if reason is not None:
            print(f"no interval: {reason}", file=stream)
    for note in left_out_notes(current().workspace.results, sweep_id):
        print(note, file=stream)
    with redirect_stdout(stream):
        for name in tables:
            print_in_form(_table_of(sweep_id, name), Form.TABLE, is_explained=False)


def _table_of(sweep_id: str, name: str) -> "Table":
    from fleetrank.orchestrator.workspace.selectors import Selectors

    selectors = Selectors.model_validate({"sweep": sweep_id, "include_simulated": True})
    return selected_table(name, selectors, now=True)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < _MOST_DIGITS for word in words):
        raise UsageError(f"--replicas '{shortened(text)}' is not a list of numbers", "give 1,2,4")
    return [int(word) for word in words]
