"""Chooses the program file for a phone: the user's file, or a verified download."""

import hashlib
import http.client
import re
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from fleetrank.device_agents.android.execution.program_files import (
    FILE_NAME,
    ProgramFile,
    file_sha256,
    read_program,
)
from fleetrank.device_agents.errors import PermanentError, TransientError, UnsupportedError
from fleetrank.foundation.files import is_no_room, make_folder, storage_error

_SHA256 = re.compile(r"[0-9a-f]{64}")
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


def choose_program(
    name: str,
    abis: Sequence[str],
    *,
    own_paths: Mapping[str, Path],
    catalogue: Sequence[CatalogueEntry],
    fetch: Fetch,
) -> ProgramFile:
    """Returns the file to push for a program.

    Args:
        name: of the program.
        abis: instruction sets of the phone, best first.
        own_paths: files and folders from `--tool NAME=PATH`; they have priority over the catalogue.
        catalogue: entries to search.
        fetch: called only for a download.

    Raises:
        UnsupportedError: no build fits, or no build can be verified; the remedy says what to give.
        PermanentError: the user's file or folder is refused, or the download is rejected.
    """
    if name in own_paths:
        return read_program(name, own_paths[name])
    fitting = [e for abi in abis for e in catalogue if (e.name, e.abi) == (name, abi)]
    for entry in fitting:
        if entry.url is not None and entry.sha256 is not None:
            return ProgramFile(name=name, path=fetch(entry), sha256=entry.sha256)
    raise _nothing_to_run(name, abis, fitting)


_REMEDY = "see device_agents/android/tools.toml for the format"


def _entry(number: int, entry: object) -> CatalogueEntry:
    where = f"tool {number} of the catalogue"
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        raise PermanentError(f"{where} is not a table of strings", _REMEDY)
    if unknown := set(entry) - _KEYS:
        raise PermanentError(f"{where} has the unknown key {min(unknown)!r}", _REMEDY)
    if not (
        FILE_NAME.fullmatch(entry.get("name", "")) and FILE_NAME.fullmatch(entry.get("abi", ""))
    ):
        raise PermanentError(f"{where} lacks a valid name or abi", _REMEDY)
    sha256 = entry.get("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise PermanentError(f"{where}: sha256 is not 64 hex digits in lower case", _REMEDY)
    return CatalogueEntry(name=entry["name"], abi=entry["abi"], url=entry.get("url"), sha256=sha256)


def _nothing_to_run(
    name: str, abis: Sequence[str], fitting: Sequence[CatalogueEntry]
) -> UnsupportedError:
    address = next((entry.url for entry in fitting if entry.url), None)
    remedy = f"give a file: `tool={name}=PATH`"
    if address is None:
        return UnsupportedError(f"no build of {name} is known for {', '.join(abis)}", remedy)
    return UnsupportedError(
        f"{name} for {', '.join(abis)} has no sha256 in the catalogue, so it is not downloaded",
        f"download {address} yourself and {remedy}",
    )


MAX_BYTES = 200 * 1024 * 1024
"""Twenty times the largest `benchmark_model`; a larger file cannot be the program."""
TIMEOUT_S = 60.0
"""Timeout of one read; a server that sends nothing for this long is unavailable."""
_CHUNK_BYTES = 1024 * 1024
HTTPS = frozenset({"https"})


def fetch(
    entry: CatalogueEntry,
    cache: Path,
    *,
    schemes: frozenset[str] = HTTPS,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Returns the verified file of an entry; downloads it if the cache does not have it.

    Args:
        entry: what to download.
        cache: folder; each file is named by its sha256. A cached file is verified again.
        schemes: schemes that the address and its redirections may use.
        max_bytes: a longer answer is rejected.

    Raises:
        UnsupportedError: the entry has no address or no sha256.
        TransientError: the server does not answer, or the connection broke.
        PermanentError: it answered with an error, wrong content, or too much; nothing is kept.
        StorageError: the cache cannot be written.
    """
    if entry.url is None or entry.sha256 is None:
        raise UnsupportedError(
            f"{entry.name} for {entry.abi} has no address or no sha256",
            f"give the file: `tool={entry.name}=PATH`",
        )
    target = cache / entry.sha256 / entry.name
    if target.is_file() and file_sha256(target) == entry.sha256:
        return target
    make_folder(target.parent)
    with NamedTemporaryFile(dir=target.parent, prefix=".download-") as temporary:
        found = _download(entry.url, temporary, schemes=schemes, max_bytes=max_bytes)
        if found != entry.sha256:
            raise PermanentError(
                f"{entry.url} returned sha256 {found}, not {entry.sha256}; the file was deleted",
                "the vendor may have published another build; check it before you trust it",
            )
        temporary.flush()
        # Only a verified file gets the final name; the temporary file is always deleted.
        target.unlink(missing_ok=True)
        target.hardlink_to(temporary.name)
    target.chmod(0o755)
    return target


class _OnlyTheseSchemes(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only to an allowed scheme."""

    def __init__(self, schemes: frozenset[str]) -> None:
        self._schemes = schemes

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _check_scheme(newurl, self._schemes)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str, file: IO[bytes], *, schemes: frozenset[str], max_bytes: int) -> str:
    """Streams an answer into a file and returns its sha256."""
    _check_scheme(url, schemes)
    opener = urllib.request.build_opener(_OnlyTheseSchemes(schemes))
    digest = hashlib.sha256()
    n_bytes = 0
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            for chunk in _chunks(answer):
                n_bytes += len(chunk)
                if n_bytes > max_bytes:
                    raise PermanentError(
                        f"{url} returns more than {max_bytes} bytes", "check the address"
                    )
                digest.update(chunk)
                file.write(chunk)
            # The library reports a broken connection as the end of the file.
            length = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        raise PermanentError(f"{url} answers {error.code}", "check the address") from error
    except (OSError, http.client.HTTPException) as error:
        if is_no_room(error):
            raise storage_error(Path(file.name), OSError(*error.args)) from error
        raise TransientError(f"{url} cannot be downloaded: {error}", "try again later") from error
    if length is not None and length.strip() != str(n_bytes):
        raise TransientError(f"the download of {url} stopped after {n_bytes} bytes", "try again")
    return digest.hexdigest()


def _chunks(answer: IO[bytes]) -> Iterator[bytes]:
    while chunk := answer.read(_CHUNK_BYTES):
        yield chunk


def _check_scheme(url: str, schemes: frozenset[str]) -> None:
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in schemes:
        raise PermanentError(
            f"{url} is not allowed: {scheme or 'no scheme'} is not {' or '.join(sorted(schemes))}",
            "use an https address",
        )
