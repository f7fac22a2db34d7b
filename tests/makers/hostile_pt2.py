"""Exported PyTorch programs that would run code when they are loaded."""

import json
import pickle  # noqa: TID251 - makes the hostile files; reads nothing
import zipfile
from collections.abc import Callable
from pathlib import Path

Rewrite = Callable[[str, bytes], bytes | None]


class Hostile:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.marker,))


def rewrite(
    source: Path, target: Path, change: Rewrite, extra: dict[str, bytes] | None = None
) -> Path:
    """Copies an archive member by member; `change` returns what to write, or None to leave out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
        for name, data in (extra or {}).items():
            new.writestr(f"{old.namelist()[0].split('/')[0]}/{name}", data)
    return target


def hostile_weights(marker: Path, source: Path, target: Path) -> Path:
    """The table of weights says that one is pickled, and it is."""

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        return pickle.dumps(Hostile(marker)) if name.endswith("/weight_0") else data

    return rewrite(source, target, change)
