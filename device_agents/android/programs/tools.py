"""Chooses the program file for a phone: the user's file, or a verified download."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError, UnsupportedError
from fleetrank.foundation import small_file

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""The name becomes a file name on the host and on the phone."""
_KEYS = {"name", "abi", "url", "sha256"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One build of a program.

    Attributes:
        abi: as in `ro.product.cpu.abilist`.
        url: the vendor's download address; `None` if no vendor distributes it.
        sha256: of the file, lower-case hex; an entry with `None` is not downloaded.
    """

    name: str
    abi: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program file on this host, ready to be pushed."""

    name: str
    path: Path
    sha256: str


Fetch = Callable[[CatalogueEntry], Path]
"""Returns the verified file of an entry that has address and sha256: see `download.fetch`."""


def load_catalogue(text: str | None = None) -> tuple[CatalogueEntry, ...]:
    """Reads a catalogue; `None` reads the one that ships with fleetrank.

    Raises:
        PermanentError: the text is not a valid catalogue; the message names entry and key.
    """
    if text is None:
        text = (
            resources.files("fleetrank.device_agents.android")
            .joinpath("tools.toml")
            .read_text("utf-8")
        )
    try:
        entries = tomllib.loads(text).get("tool", [])
    except tomllib.TOMLDecodeError as error:
        raise PermanentError(f"the catalogue of tools is not TOML: {error}", _REMEDY) from error
    if not isinstance(entries, list):
        raise PermanentError("`tool` is not a list of tables", _REMEDY)
    return tuple(_entry(number, entry) for number, entry in enumerate(entries, start=1))


def choose_tool(
    name: str,
    abis: Sequence[str],
    *,
    own_paths: Mapping[str, Path],
    catalogue: Sequence[CatalogueEntry],
    fetch: Fetch,
) -> Tool:
    """Returns the file to push for a program.

    Args:
        name: of the program.
        abis: instruction sets of the phone, best first.
        own_paths: files from `--tool NAME=PATH`; they have priority over the catalogue.
        catalogue: entries to search.
        fetch: called only for a download.

    Raises:
        UnsupportedError: no build fits, or no build can be verified; the remedy says what to give.
        PermanentError: the user's file does not exist, or the download is rejected.
    """
    if name in own_paths:
        return Tool(name=name, path=own_paths[name], sha256=file_sha256(own_paths[name]))
    fitting = [e for abi in abis for e in catalogue if (e.name, e.abi) == (name, abi)]
    for entry in fitting:
        if entry.url is not None and entry.sha256 is not None:
            return Tool(name=name, path=fetch(entry), sha256=entry.sha256)
    raise _nothing_to_run(name, abis, fitting)


def file_sha256(path: Path) -> str:
    """The sha256 of a file on this host.

    Raises:
        PermanentError: it cannot be read.
    """
    try:
        return small_file.file_sha256(path)
    except OSError as error:
        raise PermanentError(
            f"{path} cannot be read: {error.strerror}", "give a file: --tool NAME=PATH"
        ) from error


_REMEDY = "see device_agents/android/tools.toml for the format"


def _entry(number: int, entry: object) -> CatalogueEntry:
    where = f"tool {number} of the catalogue"
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        raise PermanentError(f"{where} is not a table of strings", _REMEDY)
    if unknown := set(entry) - _KEYS:
        raise PermanentError(f"{where} has the unknown key {min(unknown)!r}", _REMEDY)
    if not (_NAME.fullmatch(entry.get("name", "")) and _NAME.fullmatch(entry.get("abi", ""))):
        raise PermanentError(f"{where} lacks a valid name or abi", _REMEDY)
    sha256 = entry.get("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise PermanentError(f"{where}: sha256 is not 64 hex digits in lower case", _REMEDY)
    return CatalogueEntry(name=entry["name"], abi=entry["abi"], url=entry.get("url"), sha256=sha256)


def _nothing_to_run(
    name: str, abis: Sequence[str], fitting: Sequence[CatalogueEntry]
) -> UnsupportedError:
    address = next((entry.url for entry in fitting if entry.url), None)
    remedy = f"give a file: --tool {name}=PATH"
    if address is None:
        return UnsupportedError(f"no build of {name} is known for {', '.join(abis)}", remedy)
    return UnsupportedError(
        f"{name} for {', '.join(abis)} has no sha256 in the catalogue, so it is not downloaded",
        f"download {address} yourself and {remedy}",
    )
