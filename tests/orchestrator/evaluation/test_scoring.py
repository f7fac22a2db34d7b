"""Scoring in parts: an interruption loses no part that ended."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from scipy.special import log_softmax

from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.worker.target_scores import score_cases
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Format, Runtime
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import Artifact, Cost
from fleetrank.orchestrator.evaluation import evaluate
from fleetrank.orchestrator.evaluation.scoring import (
    Case,
    Scorer,
    Unfinished,
    score_all,
    segment_case,
    text_case,
)
from fleetrank.orchestrator.evaluation.text_reading import Reading
from fleetrank.orchestrator.evaluation.text_windows import Window

N_CASES, N_CLASSES = 150, 5


class StoppedError(Exception):
    """Stands for Ctrl-C or a full disk in the middle."""


class EchoAgent:
    """Its outputs are the inputs; it stops before a given call."""

    inputs = ()

    def __init__(self, stops_at: int | None = None) -> None:
        self.n_calls, self.stops_at = 0, stops_at

    def infer(self, task: InferTask) -> None:
        if self.n_calls == self.stops_at:
            raise StoppedError
        self.n_calls += 1
        with np.load(task.inputs_path) as stored:
            scored = [
                score_cases(_Given(logits), {"targets": row[None]})
                for logits, row in zip(stored["input_0"], stored["targets"], strict=True)
            ]
        columns = [np.concatenate([one[k] for one in scored]) for k in range(2)]
        with Path(task.outputs_path).open("wb") as file:
            np.savez(file, output_0=columns[0], output_1=columns[1], output_2=scored[0][2])


class _Given:
    inputs = ()

    def __init__(self, logits: np.ndarray) -> None:
        self._logits = logits

    def set_inputs(self, _arrays: object) -> None:
        pass

    def run(self) -> None:
        pass

    def outputs(self) -> list[np.ndarray]:
        return [self._logits]


def _scorer(agent: EchoAgent) -> Scorer:
    artifact = Artifact(
        path="x", sha256="0", size_bytes=1, format=Format.ONNX, versions=(),
        cost=Cost(macs=None, parameters=None, method=None), max_relative_error=None,
        is_trusted=True,
    )  # fmt: skip
    return Scorer(
        agent=agent, artifact=artifact, execution=Execution(runtime=Runtime.ONNX, backend="cpu")
    )


def _case(number: int) -> Case:
    logits = np.random.default_rng(number).normal(size=(2, N_CLASSES))
    return Case(inputs=(logits,), targets=np.array([number % N_CLASSES, -1 + number % 2]))


def _score(agent: EchoAgent, path: Path) -> np.ndarray:
    calls = []
    figures, _ = score_all(
        _scorer(agent),
        N_CASES,
        _case,
        Unfinished(path),
        lambda *now: calls.append(now),
        nullcontext,
    )
    assert calls[-1][0] == N_CASES
    return figures


@pytest.mark.parametrize("stops_at", [0, 1, 2])
def test_an_interrupted_run_goes_on_where_it_ended(tmp_path: Path, stops_at: int) -> None:
    whole = _score(EchoAgent(), tmp_path / "whole.jsonl")
    assert whole.shape == (N_CASES, 4)
    assert whole[:, 3].sum() == N_CASES * 1.5
    path = tmp_path / "part.jsonl"
    with pytest.raises(StoppedError):
        _score(EchoAgent(stops_at), path)
    second = EchoAgent()
    np.testing.assert_array_equal(_score(second, path), whole)
    assert second.n_calls == 3 - stops_at
    third = EchoAgent()
    np.testing.assert_array_equal(_score(third, path), whole)
    assert third.n_calls == 0


def test_others_get_the_host_between_two_parts(tmp_path: Path) -> None:
    agent, held = EchoAgent(), list[int]()

    @contextmanager
    def turn() -> Iterator[None]:
        before = agent.n_calls
        yield
        held.append(agent.n_calls - before)

    unfinished = Unfinished(tmp_path / "part.jsonl")
    score_all(_scorer(agent), N_CASES, _case, unfinished, lambda *_now: None, turn)
    assert held == [1, 1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_right_nowhere(tmp_path: Path, bad: float) -> None:
    unfinished = Unfinished(tmp_path / "part.jsonl")
    cases = [
        Case(inputs=(np.full((2, N_CLASSES), value),), targets=np.array([0, 0]))
        for value in (1.0, bad)
    ]
    figures, _ = score_all(
        _scorer(EchoAgent()), 2, cases.__getitem__, unfinished, lambda *_now: None, nullcontext
    )
    assert figures[:, 1:].tolist() == [[2, 2, 2], [0, 0, 2]]
    assert np.isfinite(figures[:, 0]).tolist() == [True, False]
    np.testing.assert_array_equal(np.array(unfinished.read()), figures)


@pytest.mark.parametrize("n_cut", [1, 20, 4000])
def test_a_line_that_is_cut_off_is_scored_again(tmp_path: Path, n_cut: int) -> None:
    path = tmp_path / "part.jsonl"
    whole = _score(EchoAgent(), path)
    path.write_bytes(path.read_bytes()[:-n_cut])
    again = EchoAgent()
    np.testing.assert_array_equal(_score(again, path), whole)
    assert again.n_calls >= 1
    np.testing.assert_array_equal(np.array(Unfinished(path).read()), whole)


def test_a_short_window_is_filled_up_at_its_end() -> None:
    case = text_case(Window(tokens=(7, 8, 9), targets=(9, 4)), 5)
    assert case.inputs[0].tolist() == [[7, 8, 9, 0, 0]]
    assert case.inputs[1].tolist() == [0, 1, 2, 3, 4]
    assert case.targets.tolist() == [-1, 9, 4, -1, -1]


class StatefulAgent(EchoAgent):
    """Its logits are the sum of the inputs since the last case that follows none."""

    inputs = (
        ModelInput(name="logits", shape=(1, N_CLASSES), dtype="float64"),
        ModelInput(name="sum", shape=(1, N_CLASSES), dtype="float64", state="next_sum"),
    )

    def infer(self, task: InferTask) -> None:
        if self.n_calls == self.stops_at:
            raise StoppedError
        self.n_calls += 1
        with np.load(task.inputs_path) as stored:
            outputs = score_cases(self, dict(stored))
        named = {f"output_{k}": output for k, output in enumerate(outputs)}
        with Path(task.outputs_path).open("wb") as file:
            np.savez(file, **named)

    def set_inputs(self, arrays: list[np.ndarray]) -> None:
        self._given = arrays

    def run(self) -> None:
        pass

    def outputs(self) -> list[np.ndarray]:
        total = self._given[0] + self._given[1]
        return [total, total]


FIRST = np.full((1, N_CLASSES), 0.25)
STARTS = (0, 5, 70, 71)
"""Cases that follow none: the third document goes on in the third part."""


def _following_case(number: int) -> Case:
    case = _case(number)
    return Case(
        inputs=(case.inputs[0][:1],), targets=case.targets[:1], follows=number not in STARTS
    )


def _score_following(agent: StatefulAgent, path: Path) -> np.ndarray:
    scorer = replace(_scorer(agent), first_states=(FIRST,))
    figures, _ = score_all(
        scorer, N_CASES, _following_case, Unfinished(path), lambda *_now: None, nullcontext
    )  # fmt: skip
    return figures


def _by_hand() -> list[float]:
    found, total = [], FIRST
    for number in range(N_CASES):
        case = _following_case(number)
        total = (total if case.follows else FIRST) + case.inputs[0]
        found.append(float(log_softmax(total[0])[case.targets[0]]))
    return found


@pytest.mark.parametrize("stops_at", [None, 0, 1, 2])
def test_states_go_from_case_to_case_also_after_an_interruption(
    tmp_path: Path, stops_at: int | None
) -> None:
    path = tmp_path / "part.jsonl"
    if stops_at is not None:
        with pytest.raises(StoppedError):
            _score_following(StatefulAgent(stops_at), path)
    agent = StatefulAgent()
    figures = _score_following(agent, path)
    np.testing.assert_allclose(figures[:, 0], _by_hand(), rtol=1e-9)
    assert agent.n_calls == 3 - (stops_at or 0)


@pytest.mark.parametrize("is_lost", [True, False])
def test_figures_without_their_states_are_scored_again(tmp_path: Path, is_lost: bool) -> None:
    path = tmp_path / "part.jsonl"
    with pytest.raises(StoppedError):
        _score_following(StatefulAgent(2), path)
    states = path.with_suffix(".npz")
    if is_lost:
        states.unlink()
    else:  # a kill between the two files: the states are those of the part before
        with pytest.raises(StoppedError):
            _score_following(StatefulAgent(1), tmp_path / "other.jsonl")
        (tmp_path / "other.npz").replace(states)
    agent = StatefulAgent()
    np.testing.assert_allclose(_score_following(agent, path)[:, 0], _by_hand(), rtol=1e-9)
    assert agent.n_calls == (3 if is_lost else 2)
    Unfinished(path).remove()
    assert not states.exists()


def test_a_segment_has_no_positions_and_is_filled_up_with_its_own_tokens() -> None:
    case = segment_case(Window(tokens=(7, 8), targets=(8, 9)), 5, follows=True)
    assert [array.tolist() for array in case.inputs] == [[[7, 8, 7, 8, 7]]]
    assert case.inputs[0].dtype == np.int64
    assert (case.targets.tolist(), case.follows) == ([8, 9, -1, -1, -1], True)


def test_a_document_begins_without_the_memory_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follows: list[bool] = []

    def scored(_run: object, _facts: object, work: evaluate._Work) -> None:
        follows.extend(work.make(number).follows for number in range(work.n_cases))
        raise StoppedError

    size = Workload.parse("score@4+k0+n2")
    for name, found in {
        "fitting": (SimpleNamespace(vocabulary=256), size), "refuse_unfit": None, "limit_fact": {},
    }.items():  # fmt: skip
        monkeypatch.setattr(evaluate, name, lambda *_, found=found: found)
    monkeypatch.setattr(evaluate, "_scored", scored)
    letters = SimpleNamespace(prefix=0, name="letters", sha256="0", encode=str.encode)
    tools = SimpleNamespace(turn=nullcontext)
    run = SimpleNamespace(head=len, subject=MagicMock(), tools=tools)
    data = SimpleNamespace(name="texts", sha256="0", documents=("aaaaaaaaa", "bbbb", "ccccc"))
    with pytest.raises(StoppedError):
        evaluate.evaluate_text(run, data, Reading(tokenizer=letters, strategy="hmt", segment=size))
    assert follows == [False, True, True, False, False, True]
