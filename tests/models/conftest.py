"""Cards and requests that several tests of the models use."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetrank.foundation.vocabulary import Family, Format
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve

EntryPoint = Callable[..., ExportRequest]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two tests at once on two cores would make PyTorch's threads wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def without_gradients(one_thread: None) -> Iterator[None]:
    """In one thread and with one seed, too."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def entry_point(tmp_path: Path) -> EntryPoint:
    """Writes a module into a workspace folder and returns the request that exports it."""

    def make(source: str, format_: Format = Format.PT2) -> ExportRequest:
        (tmp_path / "networks.py").write_text(source)
        card = ModelCard(
            name="mine",
            family=Family.MOBILE_CNN,
            source=Source.ENTRY_POINT,
            entry="networks:make",
            input_size=16,
            import_folder=str(tmp_path),
        )
        return ExportRequest(model=resolve(card), weights=Weights(), format=format_)

    return make


@pytest.fixture
def file_request() -> Callable[[Path, Format], ExportRequest]:
    """The request that takes over a file of the user's."""

    def make(path: Path, format_: Format) -> ExportRequest:
        card = ModelCard(
            name="mine",
            family=Family.MOBILE_CNN,
            source=Source.FILE,
            entry=str(path),
            input_size=None,
        )
        return ExportRequest(model=resolve(card), weights=Weights(), format=format_)

    return make
