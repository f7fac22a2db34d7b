"""Facts that a user adds to an import: what a file may say, and what it fills."""

import hashlib
import re
from pathlib import Path

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.model_facts import (
    ModelFacts,
    fill,
    parse_facts,
    read_facts,
    refuse_unknown_models,
)
from fleetrank.foundation.errors import BadFileError

ROW = {"model": "lab:net", "source_ref": "lab.csv sha256:0", "derived": ["latency_p50_ns: x"]}


def facts(*lines: str) -> ModelFacts:
    return parse_facts("models.csv", "\n".join(lines).encode())


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        ("flops", "3628000000", {"flops": 3_628_000_000, "macs": 1_814_000_000}),
        ("macs", "1.81G", {"flops": 3_620_000_000, "macs": 1_810_000_000}),
        ("macs,flops", "2 M,4M", {"flops": 4_000_000, "macs": 2_000_000}),
        ("flops", "7", {"flops": 7, "macs": 3}),
        ("params", '"11,689,512"', {"parameters": 11_689_512}),
        ("params", "11.7M", {"parameters": 11_700_000}),
        ("accuracy", "69.758%", {"accuracy_top1": 69.758}),
        ("family", "mobile_cnn", {"family": "mobile_cnn"}),
        ("has_attention", "false", {"has_attention": False}),
        ("flops,family", ",hybrid", {"family": "hybrid"}),
    ],
)
def test_a_line_fills_the_columns_of_the_table(header: str, cells: str, expected: dict) -> None:
    found = facts(f"model,{header}", f"net,{cells}").columns["net"]
    assert {name: found[name] for name in expected} == expected
    sources = {name for name in found if name.endswith(("_source", "_method"))}
    assert {name.partition("_")[0] for name in sources} <= {
        name.partition("_")[0] for name in found
    }


def test_what_is_not_a_fact_is_refused_with_its_line() -> None:
    for lines, said in (
        (("model,flop",), "holds no facts"),
        (("model,flop", "a,1"), "line 1 has an unknown column 'flop'"),
        (("flops,params", "1,1"), "line 1 must name model"),
        (("model,flops,flops", "a,1,1"), "line 1 must name model"),
        (("model,flops", "a,1", "b,4.1GB"), "line 3: key 'flops': '4.1GB' has an unknown unit"),
        (("model,flops", "a,4.1"), "line 2: key 'flops': '4.1' is not a count"),
        (("model,flops", "a,0"), "not a count"),
        (("model,params", "a,-3M"), "not a count"),
        (("model,params", "a,nan"), "not a count"),
        (("model,params", "a,9e99"), "not a count"),
        (("model,accuracy", "a,0.76"), "key 'accuracy': '0.76' is not top-1 in per cent"),
        (("model,accuracy", "a,101"), "not top-1"),
        (("model,accuracy_source", "a,web"), "a source but no accuracy"),
        (("model,family", "a,mobile"), "line 2: key 'family'"),
        (("model,has_attention", "a,yes"), "line 2: key 'has_attention'"),
        (("model,macs,flops", "a,1G,1G"), "flops is not 2 x macs"),
        (("model,flops", "a,1", "", "a,2"), "line 4 names a, as line 2 does"),
        (("model,flops", "a,1,2"), "line 2 has 3 fields"),
        (("model,flops", ",1"), "line 2: key 'model': is required"),
        (("model,flops", "a\x1b[2J,1"), "line 2: key 'model': it has a character"),
        (("model,flops", '"a,1'), "not a CSV file"),
    ):
        with pytest.raises(BadFileError, match=re.escape(said)) as caught:
            facts(*lines)
        assert caught.value.remedy, lines


def test_only_a_small_regular_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="regular file"):
        read_facts(tmp_path)
    (tmp_path / "big.csv").write_bytes(b"x" * 1_000_001)
    with pytest.raises(BadFileError, match="larger"):
        read_facts(tmp_path / "big.csv")


def test_what_a_row_lacks_is_filled_with_its_provenance() -> None:
    given = facts("model,macs,params,accuracy,accuracy_source", "net,2M,3M,70,a paper")
    (row,), notes = fill(given, "lab", [ROW])
    assert (row["flops"], row["macs"], row["parameters"]) == (4_000_000, 2_000_000, 3_000_000)
    assert (row["flops_method"], row["flops_source"]) == ("published", "models.csv, line 2")
    assert (row["accuracy_top1"], row["accuracy_source"]) == (70, "a paper")
    content = b"model,macs,params,accuracy,accuracy_source\nnet,2M,3M,70,a paper"
    digest = hashlib.sha256(content).hexdigest()
    assert row["source_ref"] == f"lab.csv sha256:0; facts models.csv sha256:{digest}"
    assert row["derived"] == [
        "latency_p50_ns: x",
        "flops, parameters, accuracy_top1: from models.csv, line 2",
    ]
    assert notes == ()


def test_what_the_source_states_is_kept_and_counted() -> None:
    stated = ROW | {"flops": 3_628_000_000, "macs": 1_814_000_000, "family": "hybrid"}
    rounded, other = facts("model,macs", "net,1.81G"), facts("model,flops,family", "net,1.81G,")
    assert fill(rounded, "lab", [stated]) == ((stated,), ())
    (row,), (note,) = fill(other, "lab", [stated])
    assert row == stated
    assert "1 model;" in note
    assert "lab:net: flops 3628000000, not 1810000000" in note


def test_models_without_a_line_are_counted_and_the_first_is_named() -> None:
    rows = [ROW | {"model": f"lab:{name}"} for name in ("b", "net", "a", "b")]
    filled, (note,) = fill(facts("model,params", "net,1"), "lab", rows)
    assert [row.get("parameters") for row in filled] == [None, 1, None, None]
    assert "2 models" in note
    assert "lab:b" in note


def test_a_name_is_that_of_the_source_or_the_stored_one() -> None:
    stored = [("lab", "lab:net"), ("lab", "resnet18")]
    for name in ("net", "lab:net", "resnet18"):
        refuse_unknown_models(facts("model,params", f"{name},1"), stored)
    with pytest.raises(AnalysisError, match=r"line 2:.* 'resnet-18'") as caught:
        refuse_unknown_models(facts("model,params", "resnet-18,1"), stored)
    assert "did you mean 'resnet18'" in caught.value.remedy
    with pytest.raises(AnalysisError, match="lines 3 and 2 both name lab:net"):
        refuse_unknown_models(facts("model,params", "net,1", "lab:net,1"), stored)
