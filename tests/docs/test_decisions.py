"""Decisions are short files, numbered without a gap, and listed."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))


def test_numbers_have_no_gap_and_stand_in_the_titles() -> None:
    numbers = [int(path.name[:4]) for path in FILES]
    assert numbers == list(range(1, len(FILES) + 1))
    for number, path in zip(numbers, FILES, strict=True):
        assert path.read_text().startswith(f"# {number}. ")


def test_each_has_status_and_date_and_is_short() -> None:
    for path in FILES:
        _title, blank, status, *text = path.read_text().splitlines()
        assert blank == ""
        form = r"Status: (accepted|replaced by \d+), 20\d\d-\d\d-\d\d\. Part: [a-z, ]+\."
        assert re.fullmatch(form, status), path.name
        assert 1 <= len([line for line in text if line]) <= 10, path.name


def test_every_file_is_listed() -> None:
    listed = set(re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", (FOLDER / "index.md").read_text()))
    assert listed == {path.name for path in FILES}
