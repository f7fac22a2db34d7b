"""What a person reads changes only with its recorded file, so that a review sees every word."""

import pytest
from golden_texts import GOLDEN, SURFACES, hold

from fleetrank.analysis.tables.tables import REQUESTS
from fleetrank.orchestrator.cli.main import COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["help.txt", "doctor.txt"])
def test_every_word_is_the_recorded_one(name: str) -> None:
    """`test_golden_tables` compares the notes, with the figures of the same tables."""
    hold(name, SURFACES[name]())


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("help.txt", [f"fleetrank {command}" for command in COMMANDS]),
        ("notes.txt", [request.words for request in REQUESTS]),
    ],
)
def test_the_record_covers_the_whole_surface(name: str, parts: list[str]) -> None:
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    assert {f"=== {part}" for part in parts} <= set(lines)


def test_no_note_of_a_table_names_an_option() -> None:
    lines = (GOLDEN / "notes.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "--" in line and not line.startswith("===")] == []
