"""Installed packages that are made up: dist-info folders and modules on `sys.path`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetrank.device_agents import registry
from fleetrank.foundation.entry_points import entry_points_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A folder of installed packages."""

    folder: Path

    def install(self, package: str, points: str, code: str = "", version: str = "1.2") -> None:
        """Installs a package whose one module has its name, with `-` as `_`.

        Args:
            package: name of the distribution.
            points: content of `entry_points.txt`.
            code: content of the module; empty if it lies elsewhere on the path.
            version: of the distribution.
        """
        info = self.folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
        (info / "entry_points.txt").write_text(points)
        if code:
            (self.folder / f"{package.replace('-', '_')}.py").write_text(code)
        forget()


def forget() -> None:
    """Makes this process read the installed packages again."""
    entry_points_of.cache_clear()
    registry._outside_kind.cache_clear()


def made_site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder on `sys.path`; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(folder)
    forget()
    yield Site(folder=folder)
    for name, module in list(sys.modules.items()):
        place = str(getattr(module, "__file__", ""))
        if str(folder) in place or "docs/recipes" in place:
            del sys.modules[name]
    forget()
