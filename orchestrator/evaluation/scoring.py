"""Runs a model over many inputs, a few at a time, and keeps what is done if it is interrupted."""

import io
import json
import math
import os
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.foundation.files import replace_file, temporary_folder
from fleetrank.models.cards.card import Artifact
from fleetrank.orchestrator.durable import storing
from fleetrank.orchestrator.errors import OrchestratorError, UsageError
from fleetrank.orchestrator.evaluation.user_data import Example, Tokenizer, read_examples

# How a long text is cut into windows that a model reads; each token is scored exactly once.
#
# A strategy is a function from tokens to windows. To add one, add it to `STRATEGIES`; one that
# needs more than the tokens of a window, such as a memory, also needs its own workload.


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One inference over a text.

    Attributes:
        tokens: what the model reads.
        targets: the tokens to predict, the last one after the last token read; as many as are
            scored.
    """

    tokens: tuple[int, ...]
    targets: tuple[int, ...]


def rolling_windows(
    tokens: Sequence[int], prefix: int, length: int, stride: int
) -> Iterator[Window]:
    """Yields windows of at most `length` tokens, each with `stride` new targets after the first.

    Args:
        tokens: of one document.
        prefix: what the first token is predicted from.
        length: most tokens of one window.
        stride: new targets of each window after the first one, from 1 to `length`.

    Source: lm-evaluation-harness, `get_rolling_token_windows` with `context_len = length - stride
    + 1`; its default, `context_len = 1`, is `stride = length`.
    """
    first = min(length, len(tokens))
    if first:
        yield Window(tokens=(prefix, *tokens[: first - 1]), targets=tuple(tokens[:first]))
    for start in range(first, len(tokens), stride):
        end = min(start + stride, len(tokens))
        yield Window(
            tokens=tuple(tokens[end - length - 1 : end - 1]), targets=tuple(tokens[start:end])
        )


def segments(tokens: Sequence[int], prefix: int, length: int) -> Iterator[Window]:
    """Yields parts of `length` tokens that do not overlap; the last one may be shorter.

    Args:
        tokens: of one document.
        prefix: what the first token is predicted from.
        length: tokens of one segment.

    Source: `SegmentIterator` in the code of He et al. 2024, github.com/OswaldHe/HMT-pytorch,
    `modeling_rmt/language_modeling.py`.
    """
    read = (prefix, *tokens)
    for start in range(0, len(tokens), length):
        end = min(start + length, len(tokens))
        yield Window(tokens=read[start:end], targets=tuple(tokens[start:end]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to read a text that is longer than a window.

    Attributes:
        windows: of the tokens of a document, the prefix, the length of a window and its stride.
        usual_stride: new targets of a window of this length, unless the user gives another number.
        has_memory: windows are segments, and each one goes on with the states of the one before.
    """

    windows: Callable[[Sequence[int], int, int, int], Iterator[Window]]
    usual_stride: Callable[[int], int]
    has_memory: bool = False


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "vanilla": Strategy(windows=rolling_windows, usual_stride=lambda length: length),
        "window": Strategy(
            windows=rolling_windows, usual_stride=lambda length: max(1, length // 2)
        ),
        "hmt": Strategy(
            windows=lambda tokens, prefix, length, _: segments(tokens, prefix, length),
            usual_stride=lambda length: length,
            has_memory=True,
        ),
    }
)
"""`vanilla` forgets everything at the end of a window; `window` slides by half of its length; `hmt`
keeps tokens and memories of earlier segments, He et al. 2024."""


Array = NDArray[np.generic]
N_FIGURES = 4
"""Figures of a case: sum of ln p, targets in the first place and in the first five, targets.

The sum is not finite if the model's scores of a target are not; such a target is in no place.
"""
_CHUNK_BYTES = 64 << 20
"""Of inputs in one process of the worker: they are a file and are in memory."""
_CHUNK_CASES = 64
"""So that an interruption loses about a minute at one second for each case."""
_TIMEOUT_S = 3600.0
"""Of one such process: a minute for each case."""


class EvaluationError(OrchestratorError):
    """The model could not be evaluated; the message has the reason of the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One inference.

    Attributes:
        inputs: in the order of the model's inputs, without states.
        targets: for each row of the output the wanted class; -1 is not scored.
        follows: it goes on with the states of the case before it.
    """

    inputs: tuple[Array, ...]
    targets: Array
    follows: bool = False


def text_case(window: Window, length: int) -> Case:
    """The inputs of a window, filled up at its end: a token does not see the tokens after it."""
    tokens = np.zeros((1, length), dtype=np.int64)
    tokens[0, : len(window.tokens)] = window.tokens
    targets = np.full(length, -1)
    targets[len(window.tokens) - len(window.targets) : len(window.tokens)] = window.targets
    return Case(inputs=(tokens, np.arange(length)), targets=targets)


def segment_case(window: Window, length: int, *, follows: bool) -> Case:
    """The inputs of a segment of a text, which has no positions beside its states.

    A segment that is shorter, the last one of a document, is filled up by repeating its tokens. No
    token sees them, but the summary of the segment does if fewer than half of `length` are given,
    so the scores depend on the text alone and not on the number of a padding token.
    """
    case = text_case(window, length)
    tokens = np.resize(np.array([window.tokens], dtype=np.int64), (1, length))
    return Case(inputs=(tokens,), targets=case.targets, follows=follows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The result of some cases.

    Attributes:
        figures: (n_cases, 4).
        n_classes: of the model.
        states: that the last case left; empty unless cases follow one another.
        runtime_version: of the worker's runtime, on the device; `None` if it names none.
    """

    figures: NDArray[np.float64]
    n_classes: int
    states: tuple[Array, ...]
    runtime_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A model on a device.

    Attributes:
        first_states: for a case that does not follow another one; empty without states.
    """

    agent: Agent
    artifact: Artifact
    execution: Execution
    first_states: tuple[Array, ...] = ()

    def score(self, cases: Sequence[Case], states: Sequence[Array] = ()) -> Scored:
        """Runs the cases in one process of the worker.

        Args:
            cases: one after another.
            states: that the case before the first one left; empty if it follows none.

        Raises:
            EvaluationError: the worker failed.
        """
        with temporary_folder("eval") as folder:
            inputs, outputs = folder / "inputs.npz", folder / "outputs.npz"
            named = {
                f"input_{number}": np.stack(arrays)
                for number, arrays in enumerate(zip(*(one.inputs for one in cases), strict=True))
            }
            n_inputs, targets = len(named), np.stack([one.targets for one in cases])
            if self.first_states:
                named["follows"] = np.array([one.follows for one in cases])
            for name, arrays in (("first", self.first_states), ("state", states)):
                named |= {f"{name}_{n_inputs + k}": array for k, array in enumerate(arrays)}
            # NumPy's stub takes every keyword for its flag `allow_pickle`.
            np.savez(inputs, targets=targets, **named)  # type: ignore[arg-type]
            failure = self.agent.infer(self._task(inputs, outputs))
            if failure is not None:
                raise EvaluationError(f"the evaluation failed: {failure.message}", failure.remedy)
            with np.load(outputs, allow_pickle=False) as found:
                probable, before = found["output_0"], found["output_1"]
                n_classes = int(found["output_2"][0])
                left = tuple(found[f"output_{3 + k}"] for k in range(len(self.first_states)))
                version = found.get("runtime_version")
        known = before >= 0
        # Without a probability the order of the classes means nothing.
        is_ranked = known & np.isfinite(probable)
        counts = ((is_ranked & (before < 1)), (is_ranked & (before < 5)), known)
        sums = [probable.sum(axis=1), *(one.sum(axis=1) for one in counts)]
        return Scored(
            figures=np.stack(sums, axis=1),
            n_classes=n_classes,
            states=left,
            runtime_version=None if version is None else str(version),
        )

    def _task(self, inputs: Path, outputs: Path) -> InferTask:
        return InferTask(
            task_id="eval",
            artifact_path=self.artifact.path,
            artifact_sha256=self.artifact.sha256,
            execution=self.execution,
            inputs_path=str(inputs),
            outputs_path=str(outputs),
            weights_path=self.artifact.weights_path,
            is_trusted=self.artifact.is_trusted,
            timeout_s=_TIMEOUT_S,
        )


class Unfinished:
    """The figures of an evaluation that has not ended, in a file that grows with each chunk."""

    def __init__(self, path: Path) -> None:
        self._path, self._states_path = path, path.with_suffix(".npz")

    def read(self) -> list[list[float]]:
        """The figures of the first cases; a line that is cut off ends them."""
        rows: list[list[float]] = []
        try:
            lines = self._path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return rows
        for line in lines[:-1]:
            try:
                found = json.loads(line)
                is_next = found["start"] == len(rows)
                rows += found["figures"] if is_next else []
            except (ValueError, KeyError, TypeError):
                break
            if not is_next:
                break
        return rows

    def append(self, start: int, figures: Array) -> None:
        """Adds the figures of the next cases, synced.

        Raises:
            StoreError: the disk is full.
        """
        line = json.dumps({"start": start, "figures": figures.tolist()}) + "\n"
        with storing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                if start == 0:
                    file.truncate(0)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())

    def read_states(self) -> tuple[int, tuple[Array, ...]]:
        """How many cases left which states; 0 and none if that is not known."""
        try:
            with np.load(self._states_path, allow_pickle=False) as found:
                n_states = len(found.files) - 1
                return int(found["n"]), tuple(found[f"state_{k}"] for k in range(n_states))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return 0, ()

    def keep_states(self, n: int, states: Sequence[Array]) -> None:
        """Replaces the states by those that the first `n` cases left.

        Raises:
            StorageError: the disk is full.
        """
        content = io.BytesIO()
        named = {f"state_{k}": array for k, array in enumerate(states)}
        np.savez(content, n=np.array(n), **named)  # type: ignore[arg-type]
        replace_file(self._states_path, content.getvalue(), is_synced=True)

    def rewrite(self, rows: Sequence[Sequence[float]]) -> None:
        """Keeps only these figures, without a line that is cut off."""
        self._path.unlink(missing_ok=True)
        if rows:
            self.append(0, np.array(rows))

    def remove(self) -> None:
        """Forgets the figures, because they are stored elsewhere."""
        self._path.unlink(missing_ok=True)
        self._states_path.unlink(missing_ok=True)


def score_all(
    scorer: Scorer,
    n_cases: int,
    make: Callable[[int], Case],
    unfinished: Unfinished,
    done: Callable[[int, int], None],
    turn: Callable[[], AbstractContextManager[object]],
) -> tuple[NDArray[np.float64], Scored | None]:
    """Scores every case that an earlier, interrupted run has not scored.

    Args:
        scorer: the model on its device.
        n_cases: number of cases, at least 1.
        make: the case of a number; called shortly before it is needed.
        unfinished: of the same evaluation.
        done: is called with the number of scored cases, and of those that an earlier run scored.
        turn: the host's lease for some of the cases; measurements go first in between.

    Returns:
        The figures of each case, (n_cases, 4), and the result of the last cases that were scored
        now, `None` if nothing was left to do.

    Raises:
        EvaluationError: the worker failed; what was scored is kept.
    """
    rows, states = unfinished.read()[:n_cases], tuple[Array, ...]()
    if scorer.first_states:
        n_known, states = unfinished.read_states()
        rows = rows[:n_known] if n_known <= len(rows) else []
    unfinished.rewrite(rows)
    n_before, scored = len(rows), None
    done(n_before, n_before)
    while len(rows) < n_cases:
        with turn():
            scored = scorer.score(_chunk(make, len(rows), n_cases), states if rows else ())
        states = scored.states
        unfinished.append(len(rows), scored.figures)
        rows += scored.figures.tolist()
        if states:
            unfinished.keep_states(len(rows), states)
        done(len(rows), n_before)
    return np.array(rows, dtype=np.float64).reshape(n_cases, N_FIGURES), scored


def _chunk(make: Callable[[int], Case], start: int, end: int) -> list[Case]:
    chunk: list[Case] = []
    n_bytes = 0
    for number in range(start, min(end, start + _CHUNK_CASES)):
        chunk.append(make(number))
        n_bytes += sum(array.nbytes for array in chunk[-1].inputs)
        if n_bytes >= _CHUNK_BYTES:
            break
    return chunk


# SmallBench: SST-2, RTE, BoolQ and MRPC as choices between two continuations of a prompt.


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """How an example is put to a model.

    Attributes:
        text: with the fields of the example in braces.
        choices: continuations of label 0 and of label 1, after a space.
    """

    text: str
    choices: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceTask:
    """One data set.

    Attributes:
        fields: field to the names that it has in published forms of the data set.
        labels: the labels of published forms; each means 0 or 1.
        has_f1: F1 of label 1 is published beside the accuracy.
    """

    fields: Mapping[str, Sequence[str]]
    labels: Mapping[str, int]
    prompt: Prompt
    has_f1: bool = False


PROMPTS = "lm-eval"
"""The set of prompts, as a stored row names it."""


def _task(table: Mapping[str, Any]) -> ChoiceTask:
    text, choices = table["prompt"]["text"], tuple(table["prompt"]["choices"])
    return ChoiceTask(**{**table, "prompt": Prompt(text=text, choices=choices)})


with Path(__file__).with_name("choice_tasks.toml").open("rb") as _file:
    CHOICE_TASKS: Mapping[str, ChoiceTask] = MappingProxyType(
        {name: _task(table) for name, table in tomllib.load(_file).items()}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One example: a context, the continuations, and which one is right."""

    context: str
    choices: tuple[str, str]
    label: int


def read_questions(task: str, path: Path) -> list[Question]:
    """Reads the examples of a data set.

    Raises:
        UsageError: the file is not in a published form of the data set, or a label is unknown.
    """
    found = CHOICE_TASKS[task]
    rows = read_examples(path, found.fields)
    return [
        Question(
            context=found.prompt.text.format_map(row),
            choices=found.prompt.choices,
            label=_label(found, path, number, row),
        )
        for number, row in enumerate(rows, 1)
    ]


def _label(task: ChoiceTask, path: Path, number: int, row: Example) -> int:
    given = str(row["label"])
    if given not in task.labels:
        raise UsageError(
            f"{path}: row {number} has the label {given!r}",
            f"use a split with labels; they are {', '.join(task.labels)}",
        )
    return task.labels[given]


def choice_windows(question: Question, tokenizer: Tokenizer, length: int) -> list[Window]:
    """What the model reads for each choice, and the tokens of the choice.

    A long context loses its beginning.

    Source: lm-evaluation-harness, `_encode_pair` and `_loglikelihood_tokens`: spaces at the end of
    the context belong to the continuation, and the context is encoded once more with it.
    """
    windows = []
    for choice in question.choices:
        context = question.context.rstrip()
        spaces = question.context[len(context) :]
        whole = tokenizer.encode(f"{context}{spaces} {choice}")
        n_context = len(tokenizer.encode(context))
        first = [tokenizer.prefix] if tokenizer.leads or not n_context else []
        tokens = [*first, *whole][-(length + 1) :]
        targets = whole[n_context:][-length:]
        windows.append(Window(tokens=tuple(tokens[:-1]), targets=tuple(targets)))
    return windows


# Figures of cases to metrics, each with its interval where one is known.

Figures = NDArray[np.float64]
"""(n_cases, 4), as `scoring.N_FIGURES` says."""
_Z = 1.959964
"""Of the normal distribution: 95 % lie within."""
_FEWEST_DOCUMENTS = 9
"""Below this the bootstrap's quantiles are too narrow, as for rank transfer."""
_DRAWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric; `None` where a figure is undefined.

    Attributes:
        name: as in column `quality_metric`.
        low, high: 95 % interval.
        n_items: what it counts: tokens, examples or images.
        right_items: of a share, whether each item was right: hexadecimal bits, the first item
            first.
        window_losses: of a perplexity, JSON: sum of -ln p and number of tokens of each window.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    n_items: int = 0
    right_items: str | None = None
    window_losses: str | None = None


def is_finite(figures: Figures) -> bool:
    """Whether the model gave every target a probability."""
    return bool(np.isfinite(figures[:, 0]).all())


def text_metrics(
    figures: Figures, documents: Sequence[int], n_bytes: Sequence[int]
) -> list[Metric]:
    """Perplexity, bits per byte and accuracies of the next token.

    Perplexity is exp(sum of -ln p / number of tokens) over the whole text: the mean over parts
    would be too high (Jensen's inequality). Bits per byte is sum of -ln p / (ln 2 x UTF-8 bytes of
    the original text), as lm-evaluation-harness defines both.

    Args:
        figures: of the windows, (n_windows, 4).
        documents: number of the document of each window.
        n_bytes: of each document.
    """
    sums = np.zeros((len(n_bytes), figures.shape[1]))
    np.add.at(sums, np.asarray(documents), figures)
    nll, first, five, tokens = -sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3]
    parts = (
        ("perplexity", nll, tokens, _exp),
        ("bits_per_byte", nll / math.log(2), np.asarray(n_bytes, dtype=float), float),
        ("token_top1", 100 * first, tokens, float),
        ("token_top5", 100 * five, tokens, float),
    )
    draws, n = None, len(n_bytes)
    if n >= _FEWEST_DOCUMENTS:
        draws = np.random.default_rng(0).integers(0, n, (_DRAWS, n))
    found = []
    for name, over, under, shown in parts:
        is_known = bool(np.isfinite(over).all())
        low, high = _interval(over, under, draws if is_known else None)
        found.append(
            Metric(
                name=name,
                value=shown(float(over.sum() / under.sum())) if is_known else None,
                low=None if low is None else shown(low),
                high=None if high is None else shown(high),
                n_items=int(tokens.sum()),
            )
        )
    if is_finite(figures):
        losses = json.dumps(np.stack([-figures[:, 0], figures[:, 3]], axis=1).tolist())
        found[0] = replace(found[0], window_losses=losses)
    return found


def _exp(mean: float) -> float | None:
    try:
        return math.exp(mean)
    except OverflowError:
        return None


def _interval(
    over: Figures, under: Figures, draws: NDArray[np.int64] | None
) -> tuple[float | None, float | None]:
    """Percentiles of the ratio of sums over documents drawn with replacement."""
    if draws is None:
        return None, None
    ratios = over[draws].sum(axis=1) / under[draws].sum(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def share_metric(name: str, is_right: NDArray[np.bool_], baseline: float | None = None) -> Metric:
    """The share of right items in per cent, with Wilson's interval.

    Source: Wilson 1927.
    """
    n_items = len(is_right)
    share = int(is_right.sum()) / n_items
    middle = (share + _Z**2 / (2 * n_items)) / (1 + _Z**2 / n_items)
    spread = math.sqrt(share * (1 - share) / n_items + _Z**2 / (4 * n_items**2))
    half = _Z / (1 + _Z**2 / n_items) * spread
    return Metric(
        name=name,
        value=100 * share,
        low=100 * max(0.0, middle - half),
        high=100 * min(1.0, middle + half),
        baseline=baseline,
        n_items=n_items,
        right_items=np.packbits(is_right).tobytes().hex(),
    )


def choice_metrics(
    log_probabilities: Figures,
    choice_bytes: NDArray[np.int64],
    labels: NDArray[np.int64],
    *,
    has_f1: bool,
) -> list[Metric]:
    """Accuracy of the more probable choice, and of the more probable one per byte.

    An example is answered wrongly if the probability of a choice is not finite.

    Args:
        log_probabilities: (n_examples, 2).
        choice_bytes: UTF-8 bytes of each choice, (n_examples, 2).
        labels: 0 or 1, (n_examples,).
        has_f1: also the F1 of label 1.
    """  # fmt: skip
    n, n_ones = len(labels), int(labels.sum())
    majority = 100 * max(n_ones, n - n_ones) / n
    has_both = np.isfinite(log_probabilities).all(axis=1)
    taken, per_byte = (
        np.where(has_both, scores.argmax(axis=1), 1 - labels)
        for scores in (log_probabilities, log_probabilities / choice_bytes)
    )
    found = [
        share_metric("acc", taken == labels, majority),
        share_metric("acc_norm", per_byte == labels, majority),
    ]
    if has_f1:
        n_both, n_taken = int((taken * labels).sum()), int(taken.sum())
        value = 200 * n_both / (n_taken + n_ones) if n_taken + n_ones else None
        # Always answering 1 has a precision of the share of ones, and finds all.
        always = 200 * n_ones / (n + n_ones) if n_ones else None
        found.append(Metric(name="f1", value=value, baseline=always, n_items=n))
    return found


def mean_accuracy(rows: Sequence[Mapping[str, object]]) -> Metric:
    """The plain mean of the accuracies of several data sets."""
    of_acc = [row for row in rows if row["quality_metric"] == "acc"]
    values, baselines = (
        [float(str(row[name])) for row in of_acc] for name in ("quality", "baseline")
    )
    return Metric(
        name="acc",
        value=sum(values) / len(values),
        baseline=sum(baselines) / len(baselines),
        n_items=sum(int(str(row["n_items"])) for row in of_acc),
    )


def picture_metrics(figures: Figures, labels: Sequence[int]) -> list[Metric]:
    """Share of images whose class is the first one, and among the first five.

    Both stand beside always giving the most frequent classes, one or five: with five classes, every
    model finds all among its first five.
    """
    n = len(labels)
    counts = np.sort(np.bincount(labels))
    return [
        share_metric(name, figures[:, place] > 0, 100 * int(counts[-k:].sum()) / n)
        for name, place, k in (("top1", 1, 1), ("top5", 2, 5))
    ]
