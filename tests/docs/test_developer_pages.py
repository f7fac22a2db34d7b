"""Pages for developers: short, linked, and about modules and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
TOP = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "README.md")]
BY_HAND = ROOT / "docs/by-hand.md"
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = {"ARCHITECTURE.md": 1000, "CONTRIBUTING.md": 1200, "docs/why.md": 1000}
MOST_WORDS_OF_DECISIONS = 5000
_PLACE = re.compile(r"`([a-z_/]+\.py)(?:: (\w+(?:\.\w+)?))?`")
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def test_each_page_of_decisions_is_listed_and_in_the_navigation() -> None:
    listed = {name for name, _ in _LINK.findall((ROOT / "docs/decisions/index.md").read_text())}
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    for path in DECISIONS:
        assert path.name == "index.md" or path.name in listed
        assert f": decisions/{path.name}\n" in navigation


def test_a_decision_is_a_statement_and_one_short_paragraph() -> None:
    for path in DECISIONS:
        for part in path.read_text().split("\n## ")[1:]:
            heading, blank, *paragraph = part.rstrip("\n").split("\n")
            assert blank == "", heading
            assert "" not in paragraph, heading
            assert 10 <= len(" ".join(paragraph).split()) <= 120, heading


def test_pages_for_developers_are_short() -> None:
    for name, most in MOST_WORDS.items():
        assert len((ROOT / name).read_text().split()) <= most, name
    assert sum(len(path.read_text().split()) for path in DECISIONS) <= MOST_WORDS_OF_DECISIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for name, heading in _LINK.findall(page.read_text()):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), name
        assert not heading or heading in _headings(target), f"{name}#{heading}"


def test_modules_and_functions_that_the_architecture_names_exist() -> None:
    places = _PLACE.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert len(places) > 20
    assert [place for place in places if not _exists(*place)] == []


def test_each_part_made_by_hand_exists_and_says_why() -> None:
    rows = re.findall(r"^\| (?!what|---)(.+) \|$", BY_HAND.read_text(), re.MULTILINE)
    assert len(rows) > 40
    for row in rows:
        what, where, lines, looked_at, reason = row.split(" | ")
        places = re.findall(r"`([a-z_]+/[a-z0-9_/.]+)`", where)
        assert places, what
        assert [place for place in places if not (ROOT / place).exists()] == [], what
        assert int(lines.replace(",", "")) > 0, what
        assert looked_at, what
        assert len(reason.split()) > 2, what


def _exists(path: str, name: str) -> bool:
    if not (ROOT / path).is_file():
        return False
    body = ast.parse((ROOT / path).read_text()).body
    for part in name.split(".") if name else ():
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _headings(page: Path) -> set[str]:
    """The anchors that MkDocs makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", title) for title in plain}
