"""One GPU of several, by UUID; hidden, divided and lost ones are refused by name."""

import re

import pytest
from fake_gpu import A100, DIVIDED, H100, SLICE
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.cuda.gpu_choice import choose_gpu, visible_gpus
from fleetrank.device_agents.cuda.gpu_presence import judge_driver, why_absent
from fleetrank.device_agents.cuda.nvml_library import Found, Gpu
from fleetrank.device_agents.errors import PermanentError, TransientError, UnusableDeviceError

BOTH = Found(gpus=(H100, A100))
MIG = Found(gpus=(H100, DIVIDED, SLICE))


def choose(found: Found, wanted: str | None = None, visible: str | None = None) -> str:
    return choose_gpu(found, wanted=wanted, visible=visible).uuid


@pytest.mark.parametrize(
    ("found", "wanted", "visible", "chosen"),
    [
        (Found(gpus=(H100,)), None, None, H100),
        (BOTH, A100.uuid, None, A100),
        (BOTH, "GPU-2222", None, A100),
        *((BOTH, A100.uuid, visible, A100) for visible in ("1", "0,1", A100.uuid, " 1 ")),
        (BOTH, None, "1", A100),
        (MIG, SLICE.uuid, None, SLICE),
    ],
)
def test_one_gpu_is_chosen_by_its_uuid_or_as_the_only_one_shown(
    found: Found, wanted: str | None, visible: str | None, chosen: Gpu
) -> None:
    assert choose(found, wanted, visible) == chosen.uuid


@pytest.mark.parametrize(
    ("found", "wanted", "visible", "error", "said"),
    [
        (BOTH, None, None, PermanentError, f"2 GPUs.*{A100.uuid}"),
        *(
            (BOTH, A100.uuid, visible, UnusableDeviceError, "CUDA_VISIBLE_DEVICES=.* hides")
            for visible in ("0", H100.uuid, "GPU-1111", "")
        ),
        (BOTH, None, "", UnusableDeviceError, "hides every GPU"),
        (MIG, A100.uuid, None, UnusableDeviceError, f"MIG mode.*{SLICE.uuid}"),
        (Found(gpus=(DIVIDED,)), None, None, UnusableDeviceError, "no instances"),
        # A GPU that is gone may come back when one was lost.
        (Found(gpus=(H100,), n_lost=1), A100.uuid, None, TransientError, "fallen off the bus"),
        (Found(gpus=(), n_lost=1), None, None, TransientError, "fallen off the bus"),
        (Found(gpus=(H100,)), A100.uuid, None, UnusableDeviceError, "has no GPU"),
        (Found(gpus=()), None, None, UnusableDeviceError, "lists no GPU"),
    ],
)
def test_a_hidden_divided_or_lost_gpu_is_refused_by_name(
    found: Found, wanted: str | None, visible: str | None, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        choose(found, wanted, visible)
    assert re.search(said, f"{raised.value.message} {raised.value.remedy}", re.DOTALL)


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
