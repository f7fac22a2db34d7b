"""`fleetrank eval`: how good a model is on data that the user has."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.vocabulary import CALIBRATED
from fleetrank.foundation.workload import Workload
from fleetrank.models.cache import ArtifactCache
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.cli.options import with_keys
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.choice_tasks import CHOICE_TASKS
from fleetrank.orchestrator.evaluation.subject import Where, find_subject
from fleetrank.orchestrator.evaluation.text_windows import STRATEGIES
from fleetrank.orchestrator.one_export import ExportTools

if TYPE_CHECKING:
    from fleetrank.orchestrator.evaluation.evaluation_rows import EvalRun, Row

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_SHOWN = (
    "task", "data", "quality_metric", "quality", "unit", "quality_low", "quality_high", "baseline",
    "n_items", "published", "flags",
)  # fmt: skip

TokenizerOption = Annotated[
    str,
    typer.Option(
        "--tokenizer", help="bytes, a tokenizer.json, a tokenizer.model, or a folder with one."
    ),
]
Window = Annotated[
    int | None, typer.Option(min=1, help="Tokens read at once (default: context, at most 1024).")
]


def _run(where: Where) -> "EvalRun":
    from fleetrank.orchestrator.evaluation.evaluation_rows import EvalRun
    from fleetrank.orchestrator.progress import PlainLines

    workspace = current().workspace
    tools = ExportTools(
        cache=ArtifactCache(workspace.artifacts),
        infer=create_agent(HOST_CPU, {}).infer,
        emit=PlainLines(sys.stderr),
        switch=StopSwitch(),
        purpose="`fleetrank eval`",
        is_trusted=where.trust,
    )
    return EvalRun(
        workspace=workspace,
        subject=find_subject(workspace, where),
        tools=tools,
        done=_show_progress,
    )


def _show_progress(task: str, done: int, before: int, total: int) -> None:
    if done == before:
        if before:
            print(f"{task}: {before} of {total} were scored by an earlier run", file=sys.stderr)
        return
    print(f"{task}: {done} of {total} scored", file=sys.stderr)


def _print(rows: "Sequence[Row]", as_json: bool) -> None:
    print_table(rows if as_json else [_shown(row) for row in rows], as_json)
    if not as_json:
        print("stored; `fleetrank report show eval` lists all evaluations", file=sys.stderr)


def _shown(row: "Row") -> "Row":
    from fleetrank.analysis.stored.evaluations import unit_of_metric

    known = {**row, "unit": unit_of_metric(str(row["quality_metric"]))}
    return {name: known.get(name) for name in _SHOWN}


def _segment(text: str) -> Workload:
    try:
        return Workload.parse(f"segment@{text}")
    except ValueError as error:
        raise UsageError(
            f"'{text}' does not describe a segment", "give its tokens, such as 64, or 64+k8+n16"
        ) from error


@app.command()
@with_keys(Where)
def ppl(
    *,
    text: Annotated[Path, typer.Option(help="A .txt, .jsonl or .parquet file, or a folder.")],
    tokenizer: TokenizerOption,
    strategy: Annotated[
        str, typer.Option(help=f"How a long text is read: {', '.join(STRATEGIES)}.")
    ] = "vanilla",
    window: Window = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="New tokens in each window (default: the strategy's).")
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option(help="Of hmt: tokens of a segment, and K and N of its memory, as 64+k8+n16."),
    ] = None,
    field: Annotated[str, typer.Option(help="Key of the text in .jsonl and .parquet.")] = "text",
    keys: Where,
    as_json: AsJson = False,
) -> None:
    """Perplexity, bits per byte and next-token accuracy on a text.

    If it is interrupted, the same command goes on where it ended.
    """
    from fleetrank.orchestrator.evaluation.evaluate import evaluate_text
    from fleetrank.orchestrator.evaluation.text_data import read_text_data
    from fleetrank.orchestrator.evaluation.text_reading import Reading
    from fleetrank.orchestrator.evaluation.user_data import DataChild, open_tokenizer

    if strategy not in STRATEGIES:
        raise UsageError(f"no strategy '{strategy}'", f"there are {', '.join(STRATEGIES)}")
    data = read_text_data(text, field)
    with closing(DataChild()) as child:
        reading = Reading(
            tokenizer=open_tokenizer(tokenizer, child), strategy=strategy, window=window,
            stride=stride, segment=None if segment is None else _segment(segment),
        )  # fmt: skip
        run = _run(keys)
        rows = evaluate_text(run, data, reading)
    _print(rows, as_json)


@app.command()
@with_keys(Where)
def smallbench(
    *,
    tokenizer: TokenizerOption,
    sst2: Annotated[Path | None, typer.Option(help="SST-2: .tsv, .jsonl or .parquet.")] = None,
    rte: Annotated[Path | None, typer.Option(help="RTE.")] = None,
    boolq: Annotated[Path | None, typer.Option(help="BoolQ.")] = None,
    mrpc: Annotated[Path | None, typer.Option(help="MRPC.")] = None,
    window: Window = None,
    keys: Where,
    as_json: AsJson = False,
) -> None:
    """Accuracy on SST-2, RTE, BoolQ and MRPC.

    The answer is the more probable one. Give one file or more. If it is interrupted, the same
    command goes on where it ended.
    """
    from fleetrank.orchestrator.evaluation.evaluate import evaluate_choices
    from fleetrank.orchestrator.evaluation.text_reading import Reading
    from fleetrank.orchestrator.evaluation.user_data import DataChild, open_tokenizer

    given = dict(zip(CHOICE_TASKS, (sst2, rte, boolq, mrpc), strict=True))
    files = {task: path for task, path in given.items() if path is not None}
    if not files:
        raise UsageError("no data set is given", "add --sst2 FILE, or another one")
    with closing(DataChild()) as child:
        reading = Reading(tokenizer=open_tokenizer(tokenizer, child), window=window)
        run = _run(keys)
        rows = evaluate_choices(run, files, reading)
    _print(rows, as_json)


@app.command()
@with_keys(Where)
def images(
    *,
    data: Annotated[Path, typer.Option(help="A folder with a folder of each class, or .parquet.")],
    classes: Annotated[
        Path | None, typer.Option(help="Names of the model's outputs, one on each line.")
    ] = None,
    crop: Annotated[
        float, typer.Option(min=0.01, max=1, help="Central share of each image that is used.")
    ] = 0.875,
    mean: Annotated[
        list[float] | None, typer.Option(help="Mean of each channel; once or for each.")
    ] = None,
    std: Annotated[
        list[float] | None, typer.Option(help="Standard deviation of each channel.")
    ] = None,
    published: Annotated[
        float | None, typer.Option(help="Published top-1 in per cent (default: the card's).")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Where it is published.")] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Points beyond which accuracy_differs is set.")
    ] = 0.5,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="With --precision int8, data for the ranges of values: a folder of images, or a "
            ".npy file (default: seeded)."
        ),
    ] = None,
    keys: Where,
    as_json: AsJson = False,
) -> None:
    """Top-1 and top-5 accuracy on labelled images.

    Images are scaled as for ImageNet unless --mean and --std are given. If it is interrupted, the
    same command goes on where it ended.
    """
    from fleetrank.models.calibration import find_calibration
    from fleetrank.models.cards.card import Preprocessing
    from fleetrank.orchestrator.evaluation.evaluate import evaluate_pictures
    from fleetrank.orchestrator.evaluation.evaluation_rows import Published
    from fleetrank.orchestrator.evaluation.picture_data import read_picture_data
    from fleetrank.orchestrator.evaluation.user_data import DataChild

    usual = Preprocessing()
    preprocessing = Preprocessing(
        crop=crop, mean=tuple(mean or usual.mean), std=tuple(std or usual.std)
    )
    found = read_picture_data(data, classes)
    run = _run(keys)
    if calibrate is not None:
        if run.subject.precision not in CALIBRATED or run.subject.request().recipe is None:
            raise UsageError("--calibrate is for networks in int8", "add --precision int8")
        data_of_ranges = find_calibration(calibrate.resolve(), preprocessing=preprocessing)
        weights = replace(run.subject.weights, calibration=data_of_ranges)
        run = replace(run, subject=replace(run.subject, weights=weights))
    with closing(DataChild()) as child:
        known = Published(value=published, source=source, tolerance=tolerance)
        rows = evaluate_pictures(run, found, preprocessing, known, child)
    _print(rows, as_json)
