"""Every importer is found by the name of its source and reads the user's path."""

from pathlib import Path

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.importer import IMPORTERS, Importer, read_releases, read_table
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.registry import UnknownNameError
from fleetrank.foundation.wording import with_flags

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("source", IMPORTERS)
def test_every_source_has_an_importer(source: str) -> None:
    assert isinstance(IMPORTERS.load(source), Importer)


@pytest.mark.parametrize(("source", "folder"), [("timm", "timm"), ("qai-hub", "qai_hub")])
def test_a_folder_of_published_tables_becomes_releases(source: str, folder: str) -> None:
    releases = read_releases(source, DATA / folder, None)
    assert {release.source for release in releases} == {source}
    assert all(release.rows for release in releases)


def test_an_unknown_source_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError) as found:
        read_releases("qai_hub", DATA, None)
    assert "qai-hub" in found.value.remedy


@pytest.mark.parametrize(
    ("source", "mapping"), [("csv", None), ("timm", DATA / "timm" / "README.md")]
)
def test_a_mapping_is_needed_by_csv_alone(source: str, mapping: Path | None) -> None:
    with pytest.raises(AnalysisError) as found:
        read_releases(source, DATA / "timm", mapping)
    assert "--map" in with_flags(found.value.remedy)


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_path_that_is_not_a_file_cannot_be_a_table(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadFileError):
        read_table(tmp_path / name)
