"""A process that exports several files makes the files of a fresh one, and is not used too long."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fleetrank.foundation.vocabulary import Format
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.errors import ExportError
from fleetrank.models.export.process import ExportChild, ExportOrder
from fleetrank.models.networks.primer import primer_request

EntryPoint = Callable[..., ExportRequest]


@pytest.fixture
def shared() -> Iterator[ExportChild]:
    with ExportChild() as child:
        yield child


def made_by(child: ExportChild, request: ExportRequest, folder: Path) -> tuple[bytes, set[int]]:
    """The file, and the exporting processes that are left after it."""
    folder.mkdir(parents=True, exist_ok=True)
    staged = child.export(ExportOrder(request=request, out_dir=folder, is_trusted=True), 600)
    left = {one.pid for one in psutil.Process().children()}
    return staged.path.read_bytes(), left


@pytest.mark.thorough
def test_a_process_exports_again_unless_code_of_the_user_ran_or_it_failed(
    tmp_path: Path, entry_point: EntryPoint, shared: ExportChild
) -> None:
    ours = primer_request(Format.PT2)
    theirs = entry_point("import torch\nmake = lambda: torch.nn.Conv2d(3, 4, 3)\n")
    seen = [made_by(shared, ours, tmp_path / "1")[1], made_by(shared, ours, tmp_path / "2")[1]]
    assert made_by(shared, theirs, tmp_path / "3")[1] == set()
    seen.append(made_by(shared, ours, tmp_path / "4")[1])
    with pytest.raises(ExportError):
        made_by(shared, replace(ours, precision="int3"), tmp_path / "5")
    seen.append(made_by(shared, ours, tmp_path / "6")[1])
    assert seen[0] == seen[1]
    assert [len(one) for one in seen] == [1] * 4
    assert len(set.union(*seen)) == 3


@pytest.mark.thorough
@pytest.mark.export
@pytest.mark.parametrize("format_", Format)
def test_files_of_a_used_process_equal_those_of_a_fresh_one(
    tmp_path: Path, shared: ExportChild, format_: Format
) -> None:
    prompt, step = (
        ExportRequest(
            model=resolve(load_language_zoo()["stories260k"]),
            weights=Weights(),
            format=format_,
            workload=Workload.parse(text),
        )
        for text in ("prefill@8", "decode@8")
    )
    fresh, _ = made_by(shared, step, tmp_path / "fresh")
    shared.end()
    made_by(shared, prompt, tmp_path / "prompt")
    again, _ = made_by(shared, step, tmp_path / "again")
    assert again == fresh
