"""Names, releases and figures of a source keep what sets them apart."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_mapping import LAB_MAPPING

from fleetrank.analysis.importers.csv_map import parse_csv
from fleetrank.analysis.importers.qai_hub import parse_qai_hub
from fleetrank.analysis.importers.release import Release, device_names, drop_reason, is_sentinel
from fleetrank.analysis.importers.timm import parse_timm

DATA = Path(__file__).parents[2] / "data"
PERF = next((DATA / "qai_hub").rglob("perf.yaml")).read_bytes()


def _csv(lines: str) -> Release:
    (release,) = parse_csv("t.csv", f"net,phone,ms\n{lines}".encode(), LAB_MAPPING.encode())
    return release


@pytest.mark.slow
@given(st.sets(st.text(max_size=12), max_size=8))
def test_two_published_devices_never_share_a_name(published: set[str]) -> None:
    names = device_names("lab", published)
    assert set(names) == published
    assert len(set(names.values())) == len(published)
    assert all(re.fullmatch(r"lab-[a-z0-9-]+", name) for name in names.values())


def test_a_plus_and_a_star_are_read_and_a_plain_name_stays() -> None:
    names = device_names("x", ["Galaxy S23", "Galaxy S23+", "Adreno640", "Adreno640*"])
    assert names == {
        "Galaxy S23": "x-galaxy-s23",
        "Galaxy S23+": "x-galaxy-s23-plus",
        "Adreno640": "x-adreno640",
        "Adreno640*": "x-adreno640-star",
    }


def test_names_that_differ_in_case_only_get_a_suffix() -> None:
    plain, other = (device_names("x", ["Pixel 8", "pixel 8"])[n] for n in ("Pixel 8", "pixel 8"))
    assert plain == "x-pixel-8"
    assert re.fullmatch(r"x-pixel-8-[0-9a-f]{6}", other)


def test_opposite_rankings_of_two_devices_do_not_average_out() -> None:
    release = _csv("a,Adreno640,1\nb,Adreno640,2\na,Adreno640*,2\nb,Adreno640*,1\n")
    rows = {(row["device"], row["model"]): row["latency_p50_ns"] for row in release.rows}
    assert rows == {
        ("lab-adreno640", "lab:a"): 1e6,
        ("lab-adreno640", "lab:b"): 2e6,
        ("lab-adreno640-star", "lab:a"): 2e6,
        ("lab-adreno640-star", "lab:b"): 1e6,
    }


def test_an_unquoted_decimal_comma_refuses_its_line_only() -> None:
    first, second = _csv("a,P,1.014,45\nb,P,2\n").rows
    assert drop_reason(first) == "more fields than columns"
    assert first["latency_p50_ns"] is None
    assert second["latency_p50_ns"] == 2e6


@pytest.mark.parametrize(
    ("name", "version", "precision"),
    [
        ("benchmark-infer-amp-nchw-pt113-cu117-rtx3090.csv", "pt1.13", "fp16"),
        ("benchmark-infer-amp-nchw-pt110-cu113-rtx3090.csv", "pt1.10", "fp16"),
        ("benchmark-infer-amp-nchw-pt1131-cu117-rtx3090.csv", "pt1.13.1", "fp16"),
        ("benchmark-infer-fp32-nchw-pt221-cpu-i9_10940x-dynamo.csv", "pt2.2.1", "fp32"),
        ("benchmark-infer-amp_bf16-nchw-pt291-cu130-pro6000maxq-dynamo.csv", "pt2.9.1", "bf16"),
    ],
)
def test_a_file_name_of_timm_says_version_and_precision(
    name: str, version: str, precision: str
) -> None:
    """The names are those of the repository's `results` folder."""
    header = "model,infer_img_size,infer_samples_per_sec,infer_batch_size\n"
    (release,) = parse_timm({name: f"{header}resnet18,224,100,1\n".encode()})
    (row,) = release.rows
    assert (release.version, row["precision"]) == (version, precision)
    autocast = [text for text in row["derived"] if "autocast" in text]
    words = {"fp16": "float16", "bf16": "bfloat16"}
    if "-amp" in name:
        assert autocast == [f"precision: amp is {words[precision]} autocast"]
    else:
        assert not autocast


def test_a_patch_release_is_separate_and_a_fixture_is_no_model() -> None:
    files = {
        "v0.4.0/models/net/perf.yaml": PERF,
        "v0.4.0r1/models/net/perf.yaml": PERF,
        "v0.4.0/test/test_utils/perf.yaml": PERF,
    }
    releases = parse_qai_hub(files)
    assert [release.version for release in releases] == ["v0.4.0", "v0.4.0r1"]
    assert not any("test_utils" in str(row["model"]) for row in releases[0].rows)


def test_two_gib_is_a_figure_and_the_code_beside_it_is_not() -> None:
    assert not is_sentinel(2048 * 2**20)
    assert is_sentinel(2**31 - 1)
    assert is_sentinel(float(2**64))


def test_codes_for_missing_memory_are_counted_and_never_a_figure() -> None:
    mapping = LAB_MAPPING.replace("[units]", 'memory = "rss"\n[units]\nmemory = "MiB"').replace(
        "batch = 1", 'batch = 1\nmemory_metric = "maxrss_growth"'
    )
    table = b"net,phone,ms,rss\na,P,1,-1\nb,P,2,2048\nc,P,3,0\n"
    (release,) = parse_csv("t.csv", table, mapping.encode())
    assert [row.get("peak_memory_bytes") for row in release.rows] == [None, 2**31, None]
    note, _not_stated = release.notes
    assert note.startswith("2 of 3 memory")
