import pytest
from pydantic import ValidationError
from wording import has

from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo, load_zoo
from fleetrank.orchestrator.identity import Plan
from fleetrank.orchestrator.plan.plan import make_plan, select_models
from fleetrank.orchestrator.token_costs import cost_without_file, token_costs
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

DEVICES = {"sim": DeviceFile(name="sim", kind="simulated")}
CARDS = load_zoo() | load_language_zoo()


def _plan(memory_bytes: int | None = None, **keys: object) -> Plan:
    spec = SweepSpec.model_validate({"name": "s", "runtimes": "onnx", "devices": "sim"} | keys)
    models = [resolve(card) for card in select_models(spec, CARDS)]
    return make_plan(spec, models, DEVICES, memory={"sim": memory_bytes})


def test_a_sweep_of_images_and_text_has_a_cell_for_each_workload_of_a_model() -> None:
    plan = _plan(models=["resnet18", "stories260k"], workloads=["prefill@8", "decode@16"])
    assert [cell.label.partition(" on ")[0] for cell in plan.cells] == [
        "resnet18",
        "stories260k prefill@8",
        "stories260k decode@16",
    ]
    assert len({cell.cell_key for cell in plan.cells}) == 3
    assert len({cell.export.key for cell in plan.cells}) == 3
    # The platform is the same: models are ranked within a workload, on one platform.
    assert len({cell.platform_key for cell in plan.cells}) == 1


def test_keys_of_images_do_not_depend_on_workloads_and_stay_as_they_were() -> None:
    [alone] = _plan(models="resnet18").cells
    [beside] = _plan(models="resnet18", workloads="decode@16").cells
    assert (alone.cell_key, alone.export.key) == (beside.cell_key, beside.export.key)
    assert alone.cell_key == "abc8ab124281172f"


def test_a_workload_gives_inputs_and_states_their_sizes() -> None:
    [cell] = _plan(models="stories260k", workloads="decode@16", batch=2).cells
    tokens, positions, keys, *_ = cell.execution.inputs
    assert (tokens.shape, tokens.values.high) == ((2, 1), 511.0)
    assert (positions.shape, positions.values.counts_to) == ((1,), 16)
    assert (keys.shape, keys.state) == ((2, 4, 16, 8), "next_keys_0")
    assert len(cell.execution.inputs) == 2 + 2 * 5


def test_without_workloads_a_model_has_the_usual_ones_of_its_kind() -> None:
    cells = _plan(models="stories260k").cells
    assert [str(cell.execution.workload) for cell in cells] == ["prefill@128", "decode@128"]


def test_a_workload_that_a_model_does_not_answer_is_skipped_with_the_reason() -> None:
    plan = _plan(models="stories260k", workloads=["encode@8", "generate@500+13", "decode@512"])
    assert [str(cell.execution.workload) for cell in plan.cells] == ["decode@512"]
    encode, generate = plan.skipped
    assert has(encode.reason, "stories260k", "segment", "train", "not encode@8")
    assert has(generate.reason, "has a context of 512 tokens, and generate@500+13 needs 513")


def test_all_names_the_models_without_tokens_and_language_the_built_in_others() -> None:
    spec = SweepSpec.model_validate({"name": "s", "models": "all"})
    assert {card.name for card in select_models(spec, CARDS)} == load_zoo().keys()
    spec = SweepSpec.model_validate({"name": "s", "models": "language"})
    assert {card.name for card in select_models(spec, CARDS)} == load_language_zoo().keys()


def test_another_text_is_refused_with_the_forms() -> None:
    with pytest.raises(ValidationError, match="decode@512"):
        SweepSpec.model_validate({"name": "s", "models": "all", "workloads": "decode"})


def test_workloads_are_written_as_text() -> None:
    spec = SweepSpec.model_validate({"name": "s", "models": "all", "workloads": "decode@9"})
    assert spec.workloads == (Workload.parse("decode@9"),)
    assert spec.model_dump(mode="json")["workloads"] == ["decode@9"]


@pytest.mark.parametrize("is_limit", [True, False])
def test_a_cache_larger_than_memory_is_skipped_with_what_fits(*, is_limit: bool) -> None:
    gigabyte = 10**9
    memory: dict[str, object] = (
        {"limits": {"memory_limit_bytes": gigabyte}} if is_limit else {"memory_bytes": gigabyte}
    )
    plan = _plan(models="smollm-135m", workloads="decode@1024", batch=[9, 64], **memory)  # type: ignore[arg-type]
    assert [cell.execution.batch for cell in plan.cells] == [9]
    (skipped,) = plan.skipped
    assert has(skipped.reason, "1,000.0 MB", "batch 9", "1,024 tokens", "156 tokens", "batch 64")
    assert not _plan(models="resnet18", batch=64, **memory).skipped  # type: ignore[arg-type]


def test_a_step_of_training_brings_its_batch_and_needs_torch() -> None:
    plan = _plan(
        models="resnet18", workloads=["image", "train@4", "train@8+adamw"],
        runtimes=["torch", "onnx"], batch=[1, 2],
    )  # fmt: skip
    found = {
        (str(cell.execution.workload), cell.execution.runtime, cell.execution.batch)
        for cell in plan.cells
    }
    images = {("image", runtime, batch) for runtime in ("torch", "onnx") for batch in (1, 2)}
    assert found == images | {("train@4", "torch", 4), ("train@8+adamw", "torch", 8)}
    assert {skipped.reason.split()[0] for skipped in plan.skipped} == {"train@4", "train@8+adamw"}
    assert all(has(skipped.reason, "onnx") for skipped in plan.skipped)


def test_images_and_training_in_other_forms_are_skipped_with_the_reason() -> None:
    keys = {"workloads": ["train@4", "train@4x16"], "runtimes": "torch"}
    reasons = [
        skipped.reason
        for plan in (
            _plan(models=["resnet18", "stories260k"], precision="fp32", **keys),
            _plan(models="resnet18", precision="bf16", **keys | {"workloads": "train@4"}),
        )
        for skipped in plan.skipped
    ]
    words = [
        ("resnet18", "train@4x16"),
        ("stories260k", "train@4x128"),
        ("train@4", "fp32", "bf16"),
    ]
    assert all(has(reason, *each) for reason, each in zip(reasons, words, strict=True))


def test_a_step_on_tokens_takes_no_cache() -> None:
    plan = _plan(models="stories260k", workloads="train@4x16", runtimes="torch")
    ((cell,), ()) = plan.cells, plan.skipped
    (tokens,) = cell.execution.inputs
    assert (tokens.shape, tokens.values.high) == ((4, 16), 511.0)
    assert cell.export.inputs == cell.execution.inputs


def test_a_segment_takes_tokens_and_memories_instead_of_a_cache() -> None:
    plan = _plan(
        models=["stories260k", "bert-tiny"],
        workloads=["segment@64+k8+n16", "segment@64+k0+n0", "segment@479", "segment@478"],
        batch=2,
    )
    cells = {str(cell.execution.workload): cell for cell in plan.cells}
    assert cells.keys() == {"segment@64+k8+n16", "segment@64+k0+n0", "segment@478"}
    cell = cells["segment@64+k8+n16"]
    tokens, sensory, memories = cell.execution.inputs
    assert (tokens.shape, tokens.state) == ((2, 64), None)
    assert (sensory.shape, sensory.state, sensory.values.high) == ((2, 8), "next_sensory", 511.0)
    assert (memories.shape, memories.state) == ((2, 16, 64), "next_memories")
    assert cell.export.inputs == cell.execution.inputs
    assert len(cells["segment@64+k0+n0"].execution.inputs) == 1
    reasons = {one.reason for one in plan.skipped}
    assert any(has(one, "context of 512 tokens, and segment@479 needs 513") for one in reasons)
    assert any(has(one, "bert-tiny is not a decoder", "segment@478") for one in reasons)


def test_devices_without_files_know_the_cost_of_a_segment() -> None:
    plan = _plan(models="stories260k", workloads=["segment@64+k0+n0", "segment@64+k8+n16"], batch=2)
    plain, whole = (
        token_costs(cell.export.card.language, cell.execution)[-1] for cell in plan.cells
    )
    known = [cost_without_file(cell.export) for cell in plan.cells]
    assert [2 * one.macs for one in known] == [plain.macs, whole.macs]  # type: ignore[operator, union-attr]
    # A pass over 64 and one over 32 tokens, 10 and 2 more places, and the recall.
    assert 1.5 * plain.macs < whole.macs < 2.5 * plain.macs
    assert plain.state_bytes == 0
    assert whole.state_bytes == 2 * (8 * 8 + 16 * 64 * 4)
