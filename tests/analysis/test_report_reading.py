"""The page's section on ways to read a long text: only where segments were measured."""

from pathlib import Path

import pytest
from language_rows import DECODERS, MACHINES, write_language_results

from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page_tables import PageTables, page_tables
from fleetrank.analysis.report.sections import page_sections
from fleetrank.analysis.stored.selection import Selection

pytestmark = pytest.mark.slow

PROMPTS = ("prefill@128", "prefill@512", "prefill@2048")
SEGMENTS = ("segment@128+k8+n16", "segment@128+k8+n0")
CHOSEN = Selection(workload="prefill@128")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading")
    return write_language_results(
        folder, decoders=DECODERS[:3], machines=MACHINES[:2], workloads=[*PROMPTS, *SEGMENTS]
    )


@pytest.fixture(scope="module")
def made(results: Path) -> tuple[Evidence, PageTables]:
    evidence = gather(results, CHOSEN)
    return evidence, page_tables(evidence)


def test_times_and_crossovers_are_tables_of_the_page(made: tuple[Evidence, PageTables]) -> None:
    (section,) = [one for one in page_sections(*made) if one.id == "reading"]
    assert [table.id for table in section.tables] == ["tokens-reading", "tokens-crossover"]
    ways = set(made[1]["tokens/reading"].frame["strategy"])
    assert {"vanilla", "window"} <= ways
