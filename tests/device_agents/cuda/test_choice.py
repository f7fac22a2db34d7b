"""One GPU of several, by UUID; hidden, divided and lost ones are refused by name."""

import pytest
from fake_gpu import A100, DIVIDED, H100, SLICE
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.cuda.agent import judge_driver, why_absent
from fleetrank.device_agents.cuda.gpu_watch import choose_gpu, visible_gpus
from fleetrank.device_agents.cuda.nvml import Found
from fleetrank.device_agents.errors import PermanentError, TransientError, UnusableDeviceError

BOTH = Found(gpus=(H100, A100))
MIG = Found(gpus=(H100, DIVIDED, SLICE))


def choose(found: Found, wanted: str | None = None, visible: str | None = None) -> str:
    return choose_gpu(found, wanted=wanted, visible=visible).uuid


def test_the_only_gpu_needs_no_name() -> None:
    assert choose(Found(gpus=(H100,))) == H100.uuid


def test_one_of_several_is_chosen_by_uuid_or_its_beginning() -> None:
    assert choose(BOTH, A100.uuid) == A100.uuid
    assert choose(BOTH, "GPU-2222") == A100.uuid


def test_several_without_a_name_are_listed() -> None:
    with pytest.raises(PermanentError, match="2 GPUs") as raised:
        choose(BOTH)
    assert A100.uuid in raised.value.remedy


@pytest.mark.parametrize("visible", ["0", H100.uuid, "GPU-1111", ""])
def test_a_gpu_hidden_by_the_environment_is_refused(visible: str) -> None:
    with pytest.raises(UnusableDeviceError, match=r"CUDA_VISIBLE_DEVICES=.* hides"):
        choose(BOTH, A100.uuid, visible)


@pytest.mark.parametrize("visible", ["1", "0,1", A100.uuid, " 1 "])
def test_a_gpu_the_environment_shows_is_taken(visible: str) -> None:
    assert choose(BOTH, A100.uuid, visible) == A100.uuid


def test_the_environment_alone_may_choose() -> None:
    assert choose(BOTH, None, "1") == A100.uuid


def test_an_environment_that_hides_all_is_named() -> None:
    with pytest.raises(UnusableDeviceError, match="hides every GPU"):
        choose(BOTH, None, "")


def test_a_divided_gpu_points_at_its_instances() -> None:
    with pytest.raises(UnusableDeviceError, match="MIG mode") as raised:
        choose(MIG, A100.uuid)
    assert SLICE.uuid in raised.value.remedy
    assert choose(MIG, SLICE.uuid) == SLICE.uuid


def test_mig_mode_without_instances_is_named() -> None:
    with pytest.raises(UnusableDeviceError, match="no instances"):
        choose(Found(gpus=(DIVIDED,)))


def test_a_gpu_that_is_gone_may_come_back_when_one_was_lost() -> None:
    with pytest.raises(TransientError, match="fallen off the bus"):
        choose(Found(gpus=(H100,), n_lost=1), A100.uuid)
    with pytest.raises(TransientError, match="fallen off the bus"):
        choose(Found(gpus=(), n_lost=1))
    with pytest.raises(UnusableDeviceError, match="has no GPU"):
        choose(Found(gpus=(H100,)), A100.uuid)


def test_a_driver_without_gpus_is_said_to_list_none() -> None:
    with pytest.raises(UnusableDeviceError, match="lists no GPU"):
        choose(Found(gpus=()))


def test_what_follows_an_unknown_entry_is_hidden() -> None:
    assert visible_gpus(BOTH.gpus, "1,-1,0") == [A100]
    assert visible_gpus(BOTH.gpus, "1,0") == [A100, H100]
    assert visible_gpus(MIG.gpus, "1") == [SLICE]


@given(st.text(max_size=60))
def test_no_environment_shows_a_gpu_twice_or_one_that_is_divided(visible: str) -> None:
    shown = visible_gpus(MIG.gpus, visible)
    assert len(shown) == len({gpu.uuid for gpu in shown})
    assert DIVIDED not in shown


def test_only_a_driver_that_does_not_answer_needs_a_remedy() -> None:
    assert judge_driver(None, has_driver_files=False) is None
    found = judge_driver("NVIDIA H100, 580.1", has_driver_files=True)
    assert found
    assert found.remedy is None
    silent = judge_driver(None, has_driver_files=True)
    assert silent
    assert "nvidia-smi" in (silent.remedy or "")


def test_a_gpu_is_found_by_the_beginning_of_its_uuid() -> None:
    assert why_absent({"uuid": "GPU-8f"}, ("GPU-8f6c1",)) is None
    assert why_absent({}, ("GPU-8f6c1",)) is None
    for seen in (None, (), ("GPU-1",)):
        assert "no such GPU" in (why_absent({"uuid": "GPU-8f"}, seen) or "")
