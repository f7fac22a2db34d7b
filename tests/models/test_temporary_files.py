from collections.abc import Callable
from pathlib import Path

import pytest

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest
from fleetrank.models.export.process import ExportChild, ExportOrder

pytestmark = pytest.mark.slow

KERAS = Path(__file__).parent / "data" / "tiny.keras"


@pytest.mark.thorough
def test_an_export_leaves_no_temporary_file(
    tmp_path: Path,
    file_request: Callable[[Path, Format], ExportRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temp, out = tmp_path / "temp", tmp_path / "out"
    temp.mkdir()
    out.mkdir()
    monkeypatch.setenv("TMPDIR", str(temp))
    request = file_request(KERAS, Format.TFLITE)
    with ExportChild() as child:
        child.export(ExportOrder(request=request, out_dir=out, is_trusted=True), 300)
    assert list(temp.iterdir()) == []
