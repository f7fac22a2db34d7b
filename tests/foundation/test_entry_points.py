"""Members of other packages: read late, and each fault is an error of its own name alone."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from outside_packages import Site, made_site
from wording import has

from fleetrank.foundation.entry_points import EntryPointError, Outside
from fleetrank.foundation.registry import Registry, UnknownNameError

GROUP = "fleetrank.codecs"
GOOD = f"[{GROUP}]\npaper = codec_paper:Paper\n"
CODE = "class Paper: pass\n"


def _why_not(member: object) -> str | None:
    return None if isinstance(member, type) else "it is not a class"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from made_site(tmp_path, monkeypatch)


@pytest.fixture
def codecs() -> Registry[type]:
    own = {"json": "json:JSONDecoder"}
    outside: Outside[type] = Outside("codec", GROUP, own, _why_not)
    return Registry("codec", own, outside)


@pytest.fixture
def outside(codecs: Registry[type]) -> Outside[type]:
    assert codecs._outside is not None
    return codecs._outside


def test_a_member_of_a_package_is_imported_when_it_is_used(
    site: Site, codecs: Registry[type], outside: Outside[type]
) -> None:
    site.install("codec-paper", GOOD, CODE)
    assert outside.names() == ("paper",)
    assert "codec_paper" not in sys.modules
    assert codecs.load("paper").__name__ == "Paper"
    assert outside.maker_of("paper") == "codec-paper 1.2"
    assert codecs.load("paper") is codecs.load("paper")


def test_a_known_name_reads_no_package(
    codecs: Registry[type], outside: Outside[type], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_group: str) -> None:
        raise AssertionError("packages were read")

    monkeypatch.setattr("fleetrank.foundation.entry_points.entry_points_of", never)
    assert codecs.load("json").__name__ == "JSONDecoder"
    assert outside.maker_of("json") is None
    with pytest.raises(AssertionError, match="packages were read"):
        codecs.load("paper")


def test_an_unknown_name_is_answered_with_those_of_packages_too(
    site: Site, codecs: Registry[type]
) -> None:
    site.install("codec-paper", GOOD, CODE)
    with pytest.raises(UnknownNameError) as caught:
        codecs.load("papr")
    assert has(caught.value.remedy, "'paper'", "json, paper")


FAULTS = {
    "no module": ("paper = no_such_module:Paper", CODE, "No module named"),
    "no attribute": ("paper = codec_paper:Pappe", CODE, "Pappe"),
    "an error at import": ("paper = codec_paper:Paper", "1 / 0", "ZeroDivisionError"),
    "an exit at import": ("paper = codec_paper:Paper", "raise SystemExit(3)", "SystemExit"),
    "a wrong syntax": ("paper = codec_paper:Paper", "class", "SyntaxError"),
    "another type": ("paper = codec_paper:Paper", "Paper = 3", "it is not a class"),
    "no attribute named": ("paper = codec_paper", CODE, "module:attribute"),
}


@pytest.mark.parametrize(("point", "code", "said"), FAULTS.values(), ids=FAULTS)
def test_a_broken_member_is_an_error_of_its_own(
    site: Site, codecs: Registry[type], outside: Outside[type], point: str, code: str, said: str
) -> None:
    site.install("codec-paper", f"[{GROUP}]\n{point}\n", code)
    site.install("codec-stone", f"[{GROUP}]\nstone = codec_stone:Stone\n", "class Stone: pass\n")
    with pytest.raises(EntryPointError) as caught:
        codecs.load("paper")
    assert said in caught.value.message
    assert "codec-paper 1.2" in caught.value.message
    assert "'paper = " in caught.value.message
    assert "pip uninstall codec-paper" in caught.value.remedy
    assert [one.name for one in outside.examined() if one.error is None] == ["stone"]
    assert list(outside.loaded()) == ["stone"]
    assert codecs.load("stone").__name__ == "Stone"


@pytest.mark.parametrize("name", ["Paper", "a/b", "1st", "x" * 31, "pa per"])
def test_a_wrong_name_is_no_member(site: Site, outside: Outside[type], name: str) -> None:
    site.install("codec-paper", f"[{GROUP}]\n{name} = codec_paper:Paper\n", CODE)
    assert outside.names() == ()
    (found,) = outside.examined()
    assert found.error is not None
    assert "small letters" in found.error.message


def test_two_packages_with_one_name_give_none(
    site: Site, codecs: Registry[type], outside: Outside[type]
) -> None:
    site.install("codec-paper", GOOD, CODE)
    site.install("codec-scroll", GOOD)
    with pytest.raises(EntryPointError, match=r"codec-paper 1\.2 and codec-scroll 1\.2"):
        codecs.load("paper")
    assert outside.names() == ()
    assert outside.maker_of("paper") is None


def test_the_own_member_wins(site: Site, codecs: Registry[type], outside: Outside[type]) -> None:
    site.install("codec-paper", f"[{GROUP}]\njson = codec_paper:Paper\n", CODE)
    assert codecs.load("json").__name__ == "JSONDecoder"
    (found,) = outside.examined()
    assert found.error is not None
    assert "codec 'json' itself" in found.error.message


def test_the_first_copy_of_a_package_on_the_path_counts(
    site: Site, outside: Outside[type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("codec-paper", GOOD, CODE)
    older = tmp_path / "older"
    older.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(older)])
    Site(folder=older).install("codec-paper", GOOD, CODE, version="1.0")
    assert outside.maker_of("paper") == "codec-paper 1.2"


@pytest.mark.parametrize("content", [b"[fleetrank.codecs]\nno equals sign\n", b"\xff\xfe\x00["])
def test_a_damaged_file_of_a_package_is_reported(
    site: Site, outside: Outside[type], content: bytes
) -> None:
    site.install("codec-paper", GOOD, CODE)
    site.install("codec-stone", f"[{GROUP}]\nstone = codec_stone:Stone\n", "class Stone: pass\n")
    (site.folder / "codec_paper-1.2.dist-info/entry_points.txt").write_bytes(content)
    bad, good = outside.examined()
    assert (bad.name, good.name) == ("?", "stone")
    assert bad.error is not None
    assert "cannot be read" in bad.error.message
    assert good.error is None
