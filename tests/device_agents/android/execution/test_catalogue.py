import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleetrank.device_agents.android.execution.catalogue import (
    CatalogueEntry,
    choose_program,
    fetch,
    load_catalogue,
)
from fleetrank.device_agents.errors import PermanentError, TransientError, UnsupportedError

CONTENT = b"#!/bin/sh\nexit 0\n" * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HTTP = frozenset({"http"})


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "ftp://127.0.0.1/tool")
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/tool")
        elif self.path == "/gone":
            self.send_response(404)
        else:
            self.send_response(200)
            length = len(CONTENT) * (2 if self.path == "/cut" else 1)
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.path in ("/tool", "/cut"):
            self.wfile.write(CONTENT)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def entry(url: str, sha256: str = SHA256) -> CatalogueEntry:
    return CatalogueEntry(name="benchmark_model", abi="arm64-v8a", url=url, sha256=sha256)


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", ["/tool", "/moved"])
def test_a_verified_download_lies_under_its_sha256(address, tmp_path, path) -> None:
    found = fetch(entry(address + path), tmp_path, schemes=HTTP)
    assert found == tmp_path / SHA256 / "benchmark_model"
    assert found.read_bytes() == CONTENT
    assert files_under(tmp_path) == [found]
    assert found.stat().st_mode & 0o777 == 0o755


def test_what_the_cache_holds_is_not_fetched_again_but_verified_again(address, tmp_path) -> None:
    found = fetch(entry(f"{address}/tool"), tmp_path, schemes=HTTP)
    assert fetch(entry("http://127.0.0.1:1/gone"), tmp_path, schemes=HTTP) == found
    found.write_bytes(b"changed")
    assert fetch(entry(f"{address}/tool"), tmp_path, schemes=HTTP).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "sha256", "error", "why"),
    [
        ("/tool", "0" * 64, PermanentError, "deleted"),
        ("/gone", SHA256, PermanentError, "404"),
        ("/elsewhere", SHA256, PermanentError, "ftp is not http"),
        ("/cut", SHA256, TransientError, "stopped after"),
    ],
)
def test_a_download_that_cannot_be_trusted_leaves_nothing(
    address, tmp_path, path, sha256, error, why
) -> None:
    with pytest.raises(error, match=why):
        fetch(entry(address + path, sha256), tmp_path, schemes=HTTP)
    assert files_under(tmp_path) == []


def test_more_than_the_limit_is_refused(address, tmp_path) -> None:
    with pytest.raises(PermanentError, match="more than 100 bytes"):
        fetch(entry(f"{address}/tool"), tmp_path, schemes=HTTP, max_bytes=100)
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("url", ["http://x/tool", "file:///etc/passwd", "tool", "ftp://x/y"])
def test_only_https_is_fetched(tmp_path, url) -> None:
    with pytest.raises(PermanentError, match="is not https"):
        fetch(entry(url), tmp_path)


def test_a_server_that_is_gone_may_come_back(tmp_path) -> None:
    with pytest.raises(TransientError, match="cannot be downloaded"):
        fetch(entry("http://127.0.0.1:1/tool"), tmp_path, schemes=HTTP)


def never(_entry: CatalogueEntry) -> Path:
    pytest.fail("nothing may be fetched")


def test_the_users_own_file_goes_first(tmp_path) -> None:
    own = tmp_path / "mine"
    own.write_bytes(CONTENT)
    tool = choose_program(
        "benchmark_model",
        ["arm64-v8a"],
        own_paths={"benchmark_model": own},
        catalogue=[entry("https://x/y")],
        fetch=never,
    )
    assert (tool.path, tool.sha256) == (own, SHA256)


def test_the_phones_best_abi_goes_first(tmp_path) -> None:
    entries = [
        CatalogueEntry(name="t", abi=abi, url=f"https://x/{abi}", sha256=SHA256)
        for abi in ("armeabi-v7a", "arm64-v8a")
    ]
    asked = []

    def take(entry: CatalogueEntry) -> Path:
        asked.append(entry.abi)
        return tmp_path

    choose_program("t", ["arm64-v8a", "armeabi-v7a"], own_paths={}, catalogue=entries, fetch=take)
    assert asked == ["arm64-v8a"]


@pytest.mark.parametrize("abi", ["arm64-v8a", "armeabi-v7a", "x86_64", "mips"])
def test_nothing_of_the_shipped_catalogue_is_fetched_unverified(abi) -> None:
    with pytest.raises(UnsupportedError) as caught:
        choose_program(
            "benchmark_model", [abi], own_paths={}, catalogue=load_catalogue(), fetch=never
        )
    assert "`tool=benchmark_model=PATH`" in caught.value.remedy


def test_a_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(PermanentError, match="none"):
        choose_program("t", [], own_paths={"t": tmp_path / "none"}, catalogue=[], fetch=never)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tool = 3", "list"),
        ("[[tool", "not TOML"),
        ('[[tool]]\nname = "a"', "name or abi"),
        ('[[tool]]\nname = "../a"\nabi = "x"', "name or abi"),
        ('[[tool]]\nname = "a"\nabi = "x"\nsha = "1"', "unknown key 'sha'"),
        ('[[tool]]\nname = "a"\nabi = "x"\nsha256 = "12"', "64 hex"),
        ('[[tool]]\nname = 1\nabi = "x"', "table of strings"),
    ],
)
def test_a_bad_catalogue_is_refused_by_entry(text, why) -> None:
    with pytest.raises(PermanentError, match=why):
        load_catalogue(text)
