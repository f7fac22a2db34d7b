from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import Release, Row, drop_reason, is_sentinel, read_number
from fleetrank.analysis.importers.timm import parse_timm

FOLDER = Path(__file__).parents[2] / "data" / "timm"
FILES = {path.name: path.read_bytes() for path in FOLDER.glob("*.csv")}


@pytest.fixture(scope="module")
def releases() -> tuple[Release, ...]:
    return parse_timm(FILES)


def _row(release: Release, model: str, device: str = "3090", size: int = 224) -> Row:
    (row,) = [
        row
        for row in release.rows
        if row["model"] == model and device in str(row["device"]) and row["input_size"] == size
    ]
    return row


def test_each_version_of_pytorch_is_a_release(releases) -> None:
    assert [(release.version, len(release.rows)) for release in releases] == [
        ("pt2.4.0", 11),
        ("pt2.9.1", 1),
    ]


def test_a_file_name_says_device_runtime_and_arithmetic(releases) -> None:
    old, new = releases
    gpu, cpu = _row(old, "resnet18"), _row(old, "resnet18", "i9")
    names = ("device_model", "tier", "backend", "mode", "precision", "batch", "options",
             "runtime_version")  # fmt: skip
    assert [gpu[name] for name in names] == [
        "NVIDIA GeForce RTX 3090", "gpu", "cuda", "eager", "fp16", 1024, '{"amp":true}',
        "2.4.0+cu124",
    ]  # fmt: skip
    assert [cpu[name] for name in names] == [
        "Intel Core i9-10940X", "cpu", "cpu", "compile", "fp32", 1, "{}", "2.4.0",
    ]  # fmt: skip
    (other,) = new.rows
    assert other["device_model"] == "NVIDIA GeForce RTX 4090"
    assert other["mode"] == "compile"
    assert other["options"] == '{"amp":true,"channels_last":true}'


def test_latency_is_time_per_sample_whatever_the_batch(releases) -> None:
    full, half = _row(releases[0], "resnet50"), _row(releases[0], "timm:resnet50@288", size=288)
    assert full["latency_p50_ns"] == pytest.approx(1e9 / 2000)
    assert half["latency_p50_ns"] == pytest.approx(1e9 / 1000)
    assert half["runtime_settings"] == '{"batch":512}'
    assert full["batch"] == half["batch"] == 1024
    assert {row["sample_kind"] for row in releases[0].rows} == {"throughput_derived"}
    assert "latency_p50_ns: mean per sample, 1e9 / infer_samples_per_sec" in full["derived"]
    (note,) = [note for note in releases[0].notes if "below 1024" in note]
    assert "2 of 8 models ran at a batch below 1024, down to 16" in note


def test_a_thousands_comma_is_no_decimal_point(releases) -> None:
    assert _row(releases[0], "timm:big_vit@224")["parameters"] == 1_014_450_000


def test_the_largest_macs_of_all_files_are_taken_and_said_so(releases) -> None:
    for device in ("3090", "i9"):
        row = _row(releases[0], "timm:attention_net@224", device)
        assert row["macs"] == 1_260_000_000
        assert row["flops"] == 2_520_000_000
        assert row["flops_method"] == "published"
        assert "files give 1, 1.26, the largest taken" in str(row["flops_source"])
    assert any("differ between files for 1 of 8 model sizes" in n for n in releases[0].notes)


def test_macs_that_are_missing_stay_missing(releases) -> None:
    row = _row(releases[0], "timm:nameless_macs@224")
    assert "macs" not in row
    assert row["status"] == "ok"


def test_accuracy_is_the_best_tag_at_the_same_size_and_says_so(releases) -> None:
    row = _row(releases[0], "timm:attention_net@224")
    assert row["accuracy_top1"] == 79.3
    assert row["accuracy_source"] == (
        "timm results-imagenet.csv: attention_net.b_in1k, best of 2 tags at 224 px"
    )
    assert "accuracy_top1" not in _row(releases[0], "timm:big_vit@224")


def test_only_a_declared_name_is_our_model(releases) -> None:
    ours = _row(releases[0], "resnet50")
    assert ours["macs"] == 4_089_000_000
    assert "by equivalence" in str(ours["flops_source"])
    assert "model: declared equal to card resnet50, resnet50@224 in timm" in ours["derived"]
    assert _row(releases[0], "timm:tf_efficientnet_b0@224")["status"] == "ok"
    assert any("tf_efficientnet_b0@224 is kept apart" in note for note in releases[0].notes)


def test_no_throughput_is_a_dropped_row_with_its_reason(releases) -> None:
    row = _row(releases[0], "timm:stuck@224")
    assert drop_reason(row) == "no throughput"
    assert row["latency_p50_ns"] is None
    assert [drop_reason(row) for row in releases[0].rows].count(None) == 10


def test_every_row_names_file_and_content(releases) -> None:
    assert len({row["source_ref"] for row in releases[0].rows}) == 2
    assert all(" sha256:" in str(row["source_ref"]) for row in releases[0].rows)
    assert any("Not read: benchmark-train" in note for note in releases[0].notes)


def test_a_folder_without_benchmarks_and_a_file_without_columns_are_refused() -> None:
    with pytest.raises(AnalysisError, match="no file benchmark-infer"):
        parse_timm({"results-imagenet.csv": FILES["results-imagenet.csv"]})
    name = "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
    with pytest.raises(AnalysisError, match="lacks infer_img_size"):
        parse_timm({name: b"model,infer_samples_per_sec\na,1\n"})


def test_accuracies_without_names_of_models_are_none() -> None:
    nameless = {"results-imagenet.csv": b"top1,img_size\n70.0,224\n"}
    (release, *_) = parse_timm(FILES | nameless)
    assert {row.get("accuracy_top1") for row in release.rows} == {None}


@given(st.integers(min_value=0, max_value=10**12))
def test_grouped_digits_read_as_the_number(value: int) -> None:
    assert read_number(f"{value:,}") == value
    assert read_number(f"{value:,}.25") == value + 0.25


@pytest.mark.parametrize("text", ["", "null", "None", "nan", "inf", "1,2,3", "abc", None])
def test_what_is_no_number_is_missing(text: object) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("value", [0, -1, 2**64 - 1, 1.8446744073709552e19])
def test_sentinels_are_known(value: float) -> None:
    assert is_sentinel(value)
