"""Downloads a program: https only, limited in size, verified before it gets its final name."""

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from fleetrank.device_agents.android.programs.tools import CatalogueEntry, file_sha256
from fleetrank.device_agents.errors import PermanentError, TransientError, UnsupportedError
from fleetrank.foundation.files import is_no_room, make_folder, storage_error

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
            f"give the file: --tool {entry.name}=PATH",
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
