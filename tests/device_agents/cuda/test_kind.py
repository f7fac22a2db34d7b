from fleetrank.device_agents.cuda.kind import CUDA, judge_driver


def test_only_a_driver_that_does_not_answer_needs_a_remedy() -> None:
    assert judge_driver(None, has_driver_files=False).remedy is None
    assert judge_driver("NVIDIA H100, 580.1", has_driver_files=True).remedy is None
    assert "nvidia-smi" in (judge_driver(None, has_driver_files=True).remedy or "")


def test_a_gpu_is_found_by_the_beginning_of_its_uuid() -> None:
    assert CUDA.presence is not None
    why_absent = CUDA.presence.why_absent
    assert why_absent({"uuid": "GPU-8f"}, ("GPU-8f6c1",)) is None
    assert why_absent({}, ("GPU-8f6c1",)) is None
    for seen in (None, (), ("GPU-1",)):
        assert "no such GPU" in (why_absent({"uuid": "GPU-8f"}, seen) or "")
