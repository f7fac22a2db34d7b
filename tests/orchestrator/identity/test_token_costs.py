from dataclasses import replace

import pytest

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import Precision, Runtime
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.language import LanguageShape
from fleetrank.orchestrator.token_costs import token_costs

STORIES_15M = LanguageShape(
    layers=6, width=288, heads=6, kv_heads=6, head_size=48, hidden=768, vocabulary=32_000,
    context=256,
)  # fmt: skip
SMOLLM_135M = replace(
    STORIES_15M, layers=30, width=576, heads=9, kv_heads=3, head_size=64, hidden=1536,
    vocabulary=49_152,
)  # fmt: skip


def costs(
    shape: LanguageShape | None,
    workload: str,
    batch: int = 1,
    precision: Precision = Precision.FP32,
    runtime: Runtime = Runtime.ONNX,
):
    execution = Execution(
        runtime=runtime,
        backend="cpu",
        batch=batch,
        workload=Workload.parse(workload),
        precision=precision,
    )
    return token_costs(shape, execution)


def test_a_step_reads_weights_once_and_the_cache_of_each_sequence() -> None:
    (one,) = costs(SMOLLM_135M, "decode@512")
    (four,) = costs(SMOLLM_135M, "decode@512", batch=4)
    assert four.macs == 4 * one.macs
    assert (four.weight_bytes, four.state_bytes) == (one.weight_bytes, 4 * one.state_bytes)
    read_and_written = one.state_bytes + one.state_bytes // 512
    assert one.state_bytes == 30 * 2 * 3 * 64 * 4 * 512
    row = 576 * 4
    assert four.moved_bytes - one.moved_bytes == 3 * (read_and_written + row)


def test_half_precision_moves_half_the_bytes() -> None:
    full, half = (
        costs(SMOLLM_135M, "decode@512", precision=one)[0]
        for one in (Precision.FP32, Precision.FP16)
    )
    assert (half.macs, 2 * half.moved_bytes) == (full.macs, full.moved_bytes)


@pytest.mark.parametrize(
    ("runtime", "precision", "bytes_each"),
    [
        # A block of 32: its numbers, a scale and, of ONNX Runtime, a zero point.
        (Runtime.ONNX, Precision.INT8, (32 + 4 + 1) / 32),
        (Runtime.ONNX, Precision.INT4, (16 + 4 + 0.5) / 32),
        (Runtime.EXECUTORCH, Precision.INT4, (16 + 2) / 32),
        (Runtime.TFLITE, Precision.INT4, 16 / 32),
    ],
)
def test_weights_in_blocks_have_scales_too(
    runtime: Runtime, precision: Precision, bytes_each: float
) -> None:
    shape = replace(SMOLLM_135M, is_tied=False)
    (full,), (low,) = (
        costs(shape, "decode@512", precision=one, runtime=runtime)
        for one in (Precision.FP32, precision)
    )
    in_block = 2 * 576 * (9 + 3) * 64 + 3 * 576 * 1536
    matrices = 30 * in_block + 576 * 49_152
    assert full.weight_bytes - low.weight_bytes == round((4 - bytes_each) * matrices)
    assert full.moved_bytes - low.moved_bytes == round((4 - bytes_each) * matrices)


def test_generate_is_a_prompt_and_steps_in_the_whole_cache() -> None:
    prompt, step = costs(STORIES_15M, "generate@128+128")
    assert step == costs(STORIES_15M, "decode@256")[0]
    assert prompt.state_bytes == step.state_bytes
    assert prompt.macs > costs(STORIES_15M, "prefill@128")[0].macs


def test_a_model_without_tokens_has_no_such_cost() -> None:
    assert costs(None, "image") == ()
