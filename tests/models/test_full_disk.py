"""Writers say in many ways that the disk is full."""

import errno
import os
from collections import namedtuple
from pathlib import Path

import pytest

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_zoo
from fleetrank.models.errors import ExportError
from fleetrank.models.export.request import export_request

REQUEST = ExportRequest(model=resolve(load_zoo()["resnet18"]), weights=Weights(), format=Format.PT2)
Usage = namedtuple("Usage", "total used free")


def _fail(monkeypatch: pytest.MonkeyPatch, error: Exception, *, free_bytes: int) -> None:
    def export(*_args: object, **_words: object) -> None:
        raise error

    monkeypatch.setattr("fleetrank.models.export.request._limit_threads", lambda: None)
    monkeypatch.setattr("fleetrank.models.export.request.export_network", export)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: Usage(1, 1, free_bytes))


@pytest.mark.parametrize(
    ("error", "free_bytes"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 10**12),
        (RuntimeError("write failed: No space left on device"), 10**12),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), 4096),
    ],
)
def test_a_full_disk_is_named_whoever_met_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, free_bytes: int
) -> None:
    _fail(monkeypatch, error, free_bytes=free_bytes)
    with pytest.raises(ExportError, match="is full"):
        export_request(REQUEST, tmp_path, is_trusted=False)


def test_another_failure_is_not_blamed_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, RuntimeError("shapes do not fit"), free_bytes=10**12)
    with pytest.raises(ExportError, match="shapes do not fit"):
        export_request(REQUEST, tmp_path, is_trusted=False)
