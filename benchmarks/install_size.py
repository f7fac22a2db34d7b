"""What each extra costs in MB, from the sizes of the installed files; run where `all` is installed.

Bytecode is not counted. Clean environments, one for each extra, have the same sizes within 5 MB.
"""

import argparse
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "fleetrank"
NOT_COUNTED = "dev"
"""The extra of those who work on fleetrank itself."""


def main() -> None:
    """Prints a table: extra, MB beside those of the base, the largest distributions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=6, help="distributions named per line")
    most = parser.parse_args().most
    base = closure("")
    print(_line("base", base, most))
    for extra in metadata.metadata(PROJECT).get_all("Provides-Extra") or ():
        if extra != NOT_COUNTED:
            print(_line(extra, closure(extra) - base, most))


def closure(extra: str) -> frozenset[str]:
    """The distributions that `pip install fleetrank[extra]` brings, by canonical name."""
    found: set[tuple[str, str]] = set()
    waiting = [(PROJECT, ""), (PROJECT, extra)]
    while waiting:
        one = waiting.pop()
        if one in found or not _is_installed(one[0]):
            continue
        found.add(one)
        for text in metadata.requires(one[0]) or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": one[1]}):
                name = canonicalize_name(wanted.name)
                waiting += [(name, ""), *((name, inner) for inner in wanted.extras)]
    return frozenset(name for name, _ in found)


@cache
def size_bytes(name: str) -> int:
    """Of the files that a distribution has installed."""
    paths = (Path(str(file.locate())) for file in metadata.files(name) or ())
    return sum(
        path.stat().st_size for path in paths if path.is_file() and "__pycache__" not in path.parts
    )


@cache
def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _line(title: str, names: frozenset[str], most: int) -> str:
    largest = sorted(names, key=size_bytes, reverse=True)[:most]
    parts = ", ".join(f"{name} {size_bytes(name) / 1e6:.0f}" for name in largest)
    return f"{title:<12}{sum(map(size_bytes, names)) / 1e6:>7.0f} MB  {parts}"


if __name__ == "__main__":
    main()
