"""The text of a task id, which older spools hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.contract.task import sweep_of
from fleetrank.orchestrator.keys import TaskId

NAMES = st.text(st.characters(blacklist_characters="/", codec="utf-8"), min_size=1)


@given(
    st.builds(
        TaskId,
        sweep_id=NAMES,
        cell_key=NAMES,
        repeat=st.integers(0),
        attempt=st.integers(0),
        taker=st.none() | NAMES,
    )
)
def test_the_text_of_a_task_id_is_read_back(task_id: TaskId) -> None:
    assert TaskId.parse(str(task_id)) == task_id
    assert sweep_of(str(task_id)) == task_id.sweep_id


def test_the_text_is_the_form_that_older_spools_hold() -> None:
    own = TaskId(sweep_id="s-1", cell_key="c", repeat=2, attempt=0)
    taken = TaskId(sweep_id="s-1", cell_key="c", repeat=2, attempt=0, taker="d")
    assert (str(own), str(taken)) == ("s-1/c/2/0", "s-1/c/2/0/d")


@pytest.mark.parametrize(
    "text", ["", "s", "s/c/1", "s/c/1/x", "s/c/-1/0", "s/c/01/0", "s/c/\u0661/0", "s/c/1/0/d/d"]
)
def test_other_text_is_not_a_task_id(text: str) -> None:
    assert TaskId.parse(text) is None
