"""Evaluates a model on text, on questions or on images, and stores the metrics.

A run that is interrupted leaves the figures of the scored cases in `results/unfinished`; the same
command goes on from there.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fleetrank.foundation.codec import to_json
from fleetrank.foundation.vocabulary import WeightsKind
from fleetrank.foundation.workload import IMAGE, Workload
from fleetrank.models.calibration import PictureForm
from fleetrank.models.cards.card import Preprocessing, own_format
from fleetrank.models.cards.input_size import takes_images
from fleetrank.models.file_inputs import inputs_of
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.choice_tasks import (
    CHOICE_TASKS,
    choice_windows,
    read_questions,
)
from fleetrank.orchestrator.evaluation.evaluation_rows import (
    Asked,
    EvalRun,
    Published,
    Row,
    limit_fact,
    store_metrics,
)
from fleetrank.orchestrator.evaluation.picture_data import PictureData, refuse_unfit_classes
from fleetrank.orchestrator.evaluation.quality_metrics import (
    Figures,
    choice_metrics,
    is_finite,
    mean_accuracy,
    picture_metrics,
    text_metrics,
)
from fleetrank.orchestrator.evaluation.scoring import (
    PROMPTS,
    Case,
    Unfinished,
    score_all,
    segment_case,
    text_case,
)
from fleetrank.orchestrator.evaluation.subject import Subject, open_scorer
from fleetrank.orchestrator.evaluation.text_data import TextData, data_sha256
from fleetrank.orchestrator.evaluation.text_reading import (
    Reading,
    first_states,
    fitting,
    refuse_misread,
)
from fleetrank.orchestrator.evaluation.text_windows import STRATEGIES, Window
from fleetrank.orchestrator.evaluation.user_data import DataChild, refuse_unfit

_RECIPE = 3
"""Increase it when cases change for equal arguments; unfinished figures then no longer match."""


def evaluate_text(run: EvalRun, data: TextData, reading: Reading) -> list[Row]:
    """Scores every token of the documents once, stores the metrics and returns their rows.

    Raises:
        UsageError: tokenizer, window or model do not fit.
        EvaluationError: the worker failed; what was scored is kept.
    """
    refuse_misread(reading)
    shape, workload = fitting(run, reading)
    strategy, length = STRATEGIES[reading.strategy], workload.length or 0
    stride = strategy.usual_stride(length) if reading.stride is None else reading.stride
    if not 1 <= stride <= length:
        raise UsageError(
            f"stride {stride} does not fit a window of {length}", "use 1 to the window"
        )
    refuse_unfit(reading.tokenizer, shape.vocabulary, run.subject.model.card.name)
    documents = data.documents[: run.head(data.documents)]
    with run.tools.turn():
        cut = [
            (number, window)
            for number, text in enumerate(documents)
            for window in strategy.windows(
                reading.tokenizer.encode(text), reading.tokenizer.prefix, length, stride
            )
        ]
    n_bytes = [len(text.encode()) for text in documents]
    facts: Row = {
        "task": "ppl", "data": data.name, "data_sha256": data.sha256,
        "strategy": reading.strategy_name, "stride_tokens": stride,
        "n_documents": len(documents), "n_windows": len(cut),
        "n_bytes": sum(n_bytes),
        **_facts_of_text(reading, length), **limit_fact(run, len(data.documents)),
    }  # fmt: skip

    def case(number: int) -> Case:
        document, window = cut[number]
        if not strategy.has_memory:
            return text_case(window, length)
        # It goes on with the states of the segment before, if that is of the same document.
        follows = number > 0 and cut[number - 1][0] == document
        return segment_case(window, length, follows=follows)

    work = _Work(
        workload=workload, make=case, n_cases=len(cut), prefix=reading.tokenizer.prefix,
        details=length,
    )  # fmt: skip
    asked, figures, _ = _scored(run, facts, work)
    metrics = text_metrics(figures, [number for number, _ in cut], n_bytes)
    return store_metrics(run, asked, {**facts, **_sums(figures)}, metrics)


def evaluate_choices(run: EvalRun, files: Mapping[str, Path], reading: Reading) -> list[Row]:
    """Answers the questions of each data set; stores the metrics and returns their rows.

    With all four data sets in full, the mean of their accuracies is one more row.

    Raises:
        UsageError: tokenizer, data or model do not fit.
        EvaluationError: the worker failed; what was scored is kept.
    """
    shape, workload = fitting(run, reading)
    longest = workload.length or 0
    refuse_unfit(reading.tokenizer, shape.vocabulary, run.subject.model.card.name)
    questions = {task: read_questions(task, path) for task, path in files.items()}
    rows: list[Row] = []
    asked: list[Asked] = []
    for task, every in questions.items():
        asked_for = every[: run.head(every)]
        with run.tools.turn():
            windows = [
                window
                for question in asked_for
                for window in choice_windows(question, reading.tokenizer, longest)
            ]
        need = max(len(window.tokens) for window in windows)
        length = min(longest, 1 << (need - 1).bit_length())
        facts: Row = {
            "task": task, "data": files[task].name, "data_sha256": data_sha256(files[task]),
            "prompts": PROMPTS, **_facts_of_text(reading, length), **limit_fact(run, len(every)),
        }  # fmt: skip
        work = _Work(
            workload=replace(workload, length=length), n_cases=len(windows), details=length,
            make=_text_cases(windows, length),
        )  # fmt: skip
        now, figures, _ = _scored(run, facts, work)
        asked.append(now)
        metrics = choice_metrics(
            figures[:, 0].reshape(-1, 2),
            np.array([[len(one.encode()) for one in each.choices] for each in asked_for]),
            np.array([each.label for each in asked_for]),
            has_f1=CHOICE_TASKS[task].has_f1,
        )
        rows += store_metrics(run, now, {**facts, **_sums(figures)}, metrics)
    if len(files) == len(CHOICE_TASKS) and all(row["item_limit"] is None for row in rows):
        whole = replace(asked[-1], is_finite=all(one.is_finite for one in asked))
        rows += store_metrics(run, whole, _all_facts(rows), [mean_accuracy(rows)])
    return rows


def _text_cases(windows: Sequence[Window], length: int) -> Callable[[int], Case]:
    return lambda number: text_case(windows[number], length)


def _all_facts(rows: Sequence[Row]) -> Row:
    """The facts of the four data sets together."""
    sums = sorted({str(row["data_sha256"]) for row in rows})
    same = ("prompts", "tokenizer", "tokenizer_sha256", "item_limit")
    return {
        "task": "smallbench",
        "data": ", ".join(dict.fromkeys(str(row["data"]) for row in rows)),
        "data_sha256": hashlib.sha256(json.dumps(sums).encode()).hexdigest(),
        **{name: rows[0][name] for name in same},
    }


def evaluate_pictures(
    run: EvalRun,
    data: PictureData,
    preprocessing: Preprocessing,
    published: Published,
    child: DataChild,
) -> list[Row]:
    """Classifies every image; stores the metrics and returns their rows.

    Raises:
        UsageError: the model takes no images, or its classes are not those of the data.
        EvaluationError: the worker failed; what was scored is kept.
    """
    card = run.subject.model.card
    form = PictureForm(shape=_image_shape(run.subject), preprocessing=preprocessing)
    n = run.head(data.labels)
    facts: Row = {
        "task": "images", "data": data.name, "data_sha256": data.sha256,
        "preprocessing": to_json(preprocessing),
        **limit_fact(run, len(data.labels)),
    }  # fmt: skip

    def case(number: int) -> Case:
        given = data.input_of(number, form, child)
        return Case(inputs=(given,), targets=np.array([data.labels[number]]))

    details = (preprocessing.crop, preprocessing.mean, preprocessing.std)
    work = _Work(workload=IMAGE, make=case, n_cases=n, details=details)
    asked, figures, n_outputs = _scored(run, facts, work)
    if n_outputs is not None:
        refuse_unfit_classes(data, n_outputs, card.name)
    metrics = picture_metrics(figures, data.labels[:n])
    is_of_card = published.value is None and run.subject.weights.kind is not WeightsKind.SEEDED
    if is_of_card:
        published = replace(published, value=card.accuracy_top1, source=card.accuracy_source)
    return store_metrics(run, asked, facts, metrics, published)


def _facts_of_text(reading: Reading, length: int) -> Row:
    tokenizer = reading.tokenizer
    return {
        "tokenizer": tokenizer.name, "tokenizer_sha256": tokenizer.sha256,
        "window_tokens": length,
    }  # fmt: skip


def _sums(figures: Figures) -> Row:
    nll = -float(figures[:, 0].sum()) if is_finite(figures) else None
    return {"nll_nats": nll, "n_tokens": int(figures[:, 3].sum())}


def _image_shape(subject: Subject) -> tuple[int, ...]:
    card, inputs = subject.model.card, subject.request().inputs
    shape = inputs[0].shape if len(inputs) == 1 else ()
    if card.input_size is not None and takes_images(card):
        shape = (1, 3, card.input_size, card.input_size)
    elif (format_ := own_format(card)) is not None and not inputs:
        stated = inputs_of(Path(card.entry), format_)
        sizes = (1, *stated[0].shape[1:]) if len(stated) == 1 else ()
        shape = tuple(size for size in sizes if isinstance(size, int))
    if len(shape) != 4 or shape[1] not in {1, 3}:
        raise UsageError(
            f"{subject.model.card.name} has no single input of shape (1, 3, height, width)",
            "state it in the card under [[inputs]], or give another model",
        )
    return shape


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What is scored.

    Attributes:
        workload: what the model computes of each case.
        make: the case of a number.
        prefix: token that a text is preceded by.
        details: further facts on which the figures depend.
    """

    workload: Workload
    make: Callable[[int], Case]
    n_cases: int
    prefix: int = 0
    details: object = None


def _scored(run: EvalRun, facts: Row, work: _Work) -> tuple[Asked, Figures, int | None]:
    started, task, n_cases = datetime.now(UTC), str(facts["task"]), work.n_cases
    request = run.subject.request(work.workload)
    scorer = replace(
        open_scorer(run.subject, request, run.tools),
        first_states=first_states(request, work.prefix),
    )
    execution = scorer.execution
    parts = (
        _RECIPE, facts, work.details, n_cases, request.key, scorer.artifact.sha256,
        run.subject.device.name, execution.runtime, execution.backend,
    )  # fmt: skip
    key = hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:20]
    unfinished = Unfinished(run.workspace.results / "unfinished" / f"eval-{key}.jsonl")
    with run.subject.device.reserved():
        figures, last = score_all(
            scorer,
            n_cases,
            work.make,
            unfinished,
            lambda now, before: run.done(task, now, before, n_cases),
            run.tools.turn,
        )
    asked = Asked(
        scorer=scorer,
        unfinished=unfinished,
        started=started,
        runtime_version=None if last is None else last.runtime_version,
        is_finite=is_finite(figures),
    )
    return asked, figures, None if last is None else last.n_classes
