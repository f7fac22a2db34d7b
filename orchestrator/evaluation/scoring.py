"""Runs a model over many inputs, a few at a time, and keeps what is done if it is interrupted."""

import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.task import Execution, InferTask, RepeatLimits
from fleetrank.foundation.files import replace_file
from fleetrank.foundation.temporary import temporary_folder
from fleetrank.models.cards.card import Artifact
from fleetrank.orchestrator.durable import storing
from fleetrank.orchestrator.errors import OrchestratorError
from fleetrank.orchestrator.evaluation.text_windows import Window

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
            limits=RepeatLimits(timeout_s=_TIMEOUT_S),
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


PROMPTS = "lm-eval"
"""The set of prompts, as a stored row names it."""
