import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.foundation.workload import IMAGE, LARGEST_LENGTH, Optimizer, Workload, WorkloadKind

LENGTHS = st.integers(1, LARGEST_LENGTH)


@given(LENGTHS, LENGTHS)
def test_a_workload_is_read_as_it_was_written(length: int, generated: int) -> None:
    for kind in set(WorkloadKind) - {WorkloadKind.TRAIN, WorkloadKind.SEGMENT}:
        one = Workload(
            kind=kind,
            length=None if kind is WorkloadKind.IMAGE else length,
            generated=generated if kind is WorkloadKind.GENERATE else None,
        )
        assert Workload.parse(str(one)) == one


@given(LENGTHS, st.none() | LENGTHS, st.sampled_from(Optimizer))
def test_a_step_of_training_is_read_as_it_was_written(
    batch: int, length: int | None, optimizer: Optimizer
) -> None:
    kind = WorkloadKind.TRAIN
    one = Workload(kind=kind, batch=batch, length=length, optimizer=optimizer)
    assert Workload.parse(str(one)) == one
    assert one.context_tokens is None
    assert one.tokens_per_sample(batch) == (None if length is None else batch * length)


@given(LENGTHS, st.integers(0, LARGEST_LENGTH), st.integers(0, LARGEST_LENGTH))
def test_segments_are_read_as_they_were_written(length: int, sensory: int, memories: int) -> None:
    for kind in (WorkloadKind.SEGMENT, WorkloadKind.SCORE):
        one = Workload(kind=kind, length=length, sensory=sensory, memories=memories)
        assert Workload.parse(str(one)) == one
        assert one.tokens_per_sample(3) == 3 * length
        assert one.context_tokens == length + sensory + (2 if memories else 0)


def test_a_segment_has_the_sizes_of_the_paper_unless_it_states_others() -> None:
    usual = Workload.parse("segment@64")
    assert (usual.sensory, usual.memories) == (32, 300)
    assert str(Workload.parse("segment@64+k32+n300")) == "segment@64"
    assert str(Workload.parse("segment@64+n16")) == "segment@64+n16"
    assert str(Workload.parse("segment@64+k0")) == "segment@64+k0"
    assert Workload.parse("score@64").memories is None


@pytest.mark.parametrize(
    "text",
    ["", "prefill", "prefill@0", "prefill@-1", "prefill@1e3", "prefill@ 1", "PREFILL@1", "image@1",
     "decode@1000001", "decode@012", "generate@1", "generate@1+0", "prefill@1+2", "prefill@1\n",
     "segment@0", "segment@8+n1+k1", "segment@8+k01", "segment@8+k1000001", "score@8+k1",
     "prefill@8+k1", "train@0", "train@8x0", "train@8+sgd", "train@1000001",
     "prefill@\u0661"],
)  # fmt: skip
def test_other_texts_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"decode@512.*1,000,000"):
        Workload.parse(text)


def test_the_sizes_of_one_inference() -> None:
    found = {
        text: (dict(one.axes), one.tokens_per_sample(batch=3))
        for text in (
            "image",
            "prefill@8",
            "decode@8",
            "generate@8+4",
            "encode@8",
            "segment@8+k2+n3",
            "segment@8+k2+n0",
        )
        for one in [Workload.parse(text)]
    }
    assert found == {
        "image": ({}, None),
        "prefill@8": ({"tokens": 8, "context": 8}, 24),
        "decode@8": ({"tokens": 1, "context": 8}, 3),
        "generate@8+4": ({"tokens": 8, "context": 12}, 3),
        "encode@8": ({"tokens": 8}, 24),
        "segment@8+k2+n3": ({"tokens": 8, "context": 12}, 24),
        "segment@8+k2+n0": ({"tokens": 8, "context": 10}, 24),
    }


def test_workloads_have_an_order_for_lists() -> None:
    texts = ["segment@8+k9+n4", "prefill@512", "decode@128", "segment@8+k0+n0", "prefill@128",
             "segment@8+k9+n3", "image"]  # fmt: skip
    ordered = sorted((Workload.parse(text) for text in texts), key=lambda one: one.sort_key)
    assert ordered[0] == IMAGE
    assert [str(one) for one in ordered[1:]] == [
        "prefill@128", "prefill@512", "decode@128", "segment@8+k0+n0", "segment@8+k9+n3",
        "segment@8+k9+n4",
    ]  # fmt: skip
    for first, second in itertools.pairwise(ordered):
        assert first.sort_key < second.sort_key
