"""ExecuTorch's line about a run of a language model."""

import json

import polars as pl
import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.llm_log import parse_log
from fleetrank.analysis.importers.release import Release, drop_reason, require_complete
from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.foundation.errors import BadFileError

# The keys and their order are those of extension/llm/runner/stats.h of ExecuTorch 1.3; the figures
# are made up: a prompt of 60 ms, then 31 tokens in 310 ms.
RUN = {
    "prompt_tokens": 128, "generated_tokens": 31, "model_load_start_ms": 1_000,
    "model_load_end_ms": 1_500, "inference_start_ms": 2_000, "inference_end_ms": 2_370,
    "prompt_eval_end_ms": 2_060, "first_token_ms": 2_061, "aggregate_sampling_time_ms": 3,
    "SCALING_FACTOR_UNITS_PER_SECOND": 1_000,
}  # fmt: skip
MAPPING = """
model = "SmolLM 135M"
card = "smollm-135m"
device = "Pixel 8"
tier = "edge"
precision = "fp32"
licence = "own"
threads = 4
"""


def line(**other: object) -> str:
    return f"I 00:00:03 executorch:stats.h:87] \tPyTorchObserver {json.dumps(RUN | other)}\n"


def parsed(*lines: str, mapping: str = MAPPING) -> Release:
    (release,) = parse_log("run.log", "".join(lines).encode(), mapping.encode())
    require_complete(release)
    return release


def test_a_line_is_a_row_of_generate() -> None:
    release = parsed("Reached to the end of generation\n", line(), line(inference_end_ms=2_680))
    row, slower = release.rows
    assert (row["model"], row["workload"]) == ("smollm-135m", "generate@128+31")
    assert (row["latency_p50_ns"], slower["latency_p50_ns"]) == (10e6, 20e6)
    assert row["ttft_samples_ns"] == [61_000_000]
    assert (row["sample_kind"], row["statistic"]) == ("tool_summary", "mean")
    assert (row["device"], row["threads"]) == ("executorch-llm-pixel-8", 4)
    assert row.get("context_tokens") is None, "the log does not state the size of the cache"
    pl.DataFrame([dict.fromkeys(SCHEMA) | one for one in release.rows], schema=SCHEMA)


def test_the_scale_of_the_line_counts() -> None:
    (row,) = parsed(line(SCALING_FACTOR_UNITS_PER_SECOND=1_000_000)).rows
    assert row["latency_p50_ns"] == 10_000


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"generated_tokens": 0}, "no prompt or no generated token"),
        ({"inference_end_ms": 2_060}, "times out of order"),
        ({"inference_start_ms": 2_100}, "times out of order"),
        ({"prompt_tokens": None}, "a field is missing or no count"),
        ({"prompt_tokens": -1}, "a field is missing or no count"),
        ({"first_token_ms": 1e300}, "a field is missing or no count"),
        ({"SCALING_FACTOR_UNITS_PER_SECOND": 0}, "no prompt or no generated token"),
        ({"SCALING_FACTOR_UNITS_PER_SECOND": 2**52}, "out of range"),
        ({"inference_end_ms": 2**52}, "out of range"),
    ],
)
def test_a_line_that_cannot_be_right_is_dropped_with_its_reason(
    other: dict[str, object], reason: str
) -> None:
    wrong, good = parsed(line(**other), line()).rows
    assert drop_reason(wrong) == reason
    assert drop_reason(good) is None


def test_a_log_or_mapping_that_lacks_something_says_what() -> None:
    with pytest.raises(AnalysisError, match="no line of PyTorchObserver"):
        parsed("nothing\n")
    for mapping, said in (
        ('model = "a"\nprecision = "fp32"\nlicence = "own"\n', "'device': is required.*'tier'"),
        (f'{MAPPING}modle = "a"\n', "unknown key 'modle'"),
        (MAPPING.replace("threads = 4", "threads = 0"), "'threads'"),
        (MAPPING.replace("edge", "phone"), "'tier'"),
    ):
        with pytest.raises(BadFileError, match=said):
            parsed(line(), mapping=mapping)
