"""The JUnit file of a comparison says what the gate says."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from fleet_rows import NETS, PLACES, Place, write_results
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.arrays.two_samples import Verdict
from fleetrank.analysis.comparison.comparison import Comparison, compare_sweeps
from fleetrank.analysis.comparison.gates import Requirement, junit_xml, unmet_requirements

pytestmark = pytest.mark.slow


A, B, FEW = ("s-20260101T000000-aa", "s-20260102T000000-bb", "s-20260103T000000-cc")


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> list[Comparison]:
    results = tmp_path_factory.mktemp("gate") / "results"
    slow = [Place(device=p.device, tier=p.tier, runtime=p.runtime, gflops=p.gflops / 1.5)
            for p in PLACES[:1]]  # fmt: skip
    calm = [f"s-2025010{number}T000000-dd" for number in range(1, 7)]  # how far sessions differ
    for sweep, places, repeats, n in (
        *((one, PLACES[:1], 2, 4) for one in calm), (A, PLACES[:1], 6, 4), (B, slow, 6, 3),
    ):  # fmt: skip
        options = {"repeats": repeats, "n_samples": 3, "sweep": sweep}
        write_results(results, nets=NETS[:n], places=places, **options)
    found = [compare_sweeps(results, a, b) for a, b in ((A, B), (B, A))]
    write_results(results, nets=NETS[:4], places=slow, repeats=2, n_samples=3, sweep=FEW)
    return [*found, compare_sweeps(results, A, FEW)]


def _requirements() -> list[tuple[Requirement, ...]]:
    return [some for n in range(3) for some in combinations(Requirement, n)]


def test_a_case_fails_exactly_if_the_gate_does(comparisons: list[Comparison]) -> None:
    outcomes = set()
    for found in comparisons:
        for required in _requirements():
            (suite,) = ET.fromstring(junit_xml(found, required))
            cases = suite.findall("testcase")
            n_failed = len(suite.findall("testcase/failure"))
            is_bad = bool(
                found.counts[Verdict.SLOWER]
                or found.n_tested == 0
                or unmet_requirements(found, required)
            )
            assert (n_failed > 0) == is_bad
            outcomes.add(is_bad)
            assert suite.attrib["tests"] == str(len(cases))
            assert suite.attrib["failures"] == str(n_failed)
            assert suite.attrib["skipped"] == str(len(suite.findall("testcase/skipped")))
            assert len(cases) == len(found.cells) + (found.n_tested == 0)
    assert outcomes == {True, False}


def test_a_cell_of_one_sweep_alone_meets_no_requirement(comparisons: list[Comparison]) -> None:
    faster = comparisons[1]
    wide = replace(faster, limits=replace(faster.limits, margin=0.07))
    texts = unmet_requirements(wide, tuple(Requirement))
    assert [text.partition(" not ")[0].partition(" too ")[0] for text in texts] == [
        "4 cells", "1 cell", "1 cell",
    ]  # fmt: skip
    assert unmet_requirements(wide, ()) == ()


@given(name=st.text(min_size=1))
def test_any_name_gives_a_valid_file(comparisons: list[Comparison], name: str) -> None:
    found = comparisons[0]
    hostile = replace(found, cells=(replace(found.cells[0], model=name),))
    assert ET.fromstring(junit_xml(hostile, ())).find("testsuite/testcase") is not None


def test_files_are_written_before_the_exit_code(
    tmp_path: Path, comparisons: list[Comparison], capsys: pytest.CaptureFixture[str]
) -> None:
    from fleetrank.orchestrator.cli.main import run

    (tmp_path / "cluster.yaml").touch()
    for sweep, gflops in ((A, 60.0), (B, 20.0)):
        place = Place(device="d", tier="cpu", runtime="onnx", gflops=gflops)
        options = {"repeats": 6, "n_samples": 3, "sweep": sweep}
        write_results(tmp_path / "results", nets=NETS[:2], places=[place], **options)
    junit = tmp_path / "gate" / "junit.xml"
    here = ["--workspace", str(tmp_path)]
    assert run(["sweep", "status", A, "--tag", "base", *here]) == 0
    assert run(["report", "compare", "tag:base", "s", "--junit", str(junit), *here]) == 5
    assert capsys.readouterr().err.split() == ["s:", B, "tag:base:", A]
    assert ET.parse(junit).getroot()[0].attrib["failures"] == "2"
