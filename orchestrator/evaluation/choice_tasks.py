"""SmallBench: SST-2, RTE, BoolQ and MRPC as choices between two continuations of a prompt."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.text_data import Example, read_examples
from fleetrank.orchestrator.evaluation.text_windows import Window
from fleetrank.orchestrator.evaluation.user_data import Tokenizer


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
