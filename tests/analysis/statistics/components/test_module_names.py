"""Names that LiteRT shortens, against the networks they come from."""

import polars as pl
import pytest

from fleetrank.analysis.statistics.components.module_names import whole_name, with_whole_names

KNOWN = {"stem", "blocks", "blocks.0", "blocks.0.up", "blocks.1", "blocks.1.up", "head.fc"}


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("0", "blocks.0"),
        ("1.up", "blocks.1.up"),
        ("1.act", "blocks.1.act"),
        ("1.act.2", "blocks.1.act.2"),
        ("blocks.1.up", "blocks.1.up"),
        ("stem", "stem"),
        ("7.up", "7.up"),
        ("norm", "norm"),
        ("", ""),
    ],
)
def test_a_short_name_is_completed(name: str, whole: str) -> None:
    assert whole_name(name, KNOWN) == whole


def test_a_name_that_can_be_two_modules_stays() -> None:
    assert whole_name("0", {"encoder.0", "decoder.0"}) == "0"
    assert whole_name("0.up", {"encoder.0.up", "decoder.0.up"}) == "0.up"


def test_only_kernels_of_tflite_files_are_renamed() -> None:
    place = {"sweep_id": "s", "model": "net", "workload": "image"}
    kernels = pl.DataFrame(
        [
            {**place, "runtime": runtime, "module": module, "node": node}
            for node, (runtime, module) in enumerate(
                [("onnx", "0"), ("tflite", "0"), ("tflite", None), ("tflite", "stem")]
            )
        ]
    )
    macs = pl.DataFrame([{**place, "module": "blocks.0.up"}])
    found = with_whole_names(kernels, macs)
    assert found["module"].to_list() == ["0", "blocks.0", None, "stem"]
    assert found.columns == kernels.columns
    assert with_whole_names(kernels, macs.clear()).equals(kernels)
