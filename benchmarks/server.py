"""How many requests does `report serve` answer in a second, and how long does the slowest wait?

16 clients ask for a table that they have, for progress, and for SQL that is computed each time;
in turn with Python's own `http.server` handing out the table as a file, which is what one would use
instead of a server. Printed: requests per second, median and 99th percentile per path, and the
ratio of each rate to that of the plain file. The clients share the machine with the server.
"""

import contextlib
import http.client
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "makers"))

from fleet_rows import write_results
from serving import serving

CLIENTS = 16
SECONDS = 5.0
TABLE = "/api/tables/transfer"
PATHS = (TABLE, "/api/progress", "/api/query?sql=SELECT+count(*)+FROM+measurements")


@dataclass(frozen=True)
class Load:
    """What 16 clients saw."""

    seconds: tuple[float, ...]
    wall_s: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.seconds) / self.wall_s

    def line(self, name: str, beside: "Load") -> str:
        """One line of the answer."""
        cuts = statistics.quantiles(self.seconds, n=100)
        return (
            f"{name:14} {self.rate:8.0f} requests/s   median {1e3 * cuts[49]:7.1f} ms   "
            f"p99 {1e3 * cuts[98]:7.1f} ms   {self.rate / beside.rate:.2f} of a plain file's rate"
        )


def main() -> None:
    """Starts both servers, loads them in turn and prints a line per path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.yaml").touch()
        write_results(folder / "results")
        with serving(folder) as server:
            port = int(server.base.rpartition(":")[2])
            (folder / "static").mkdir()
            (folder / "static" / "table.json").write_bytes(get(port, TABLE))
            with plain_server(folder / "static") as plain_port:
                plain = load(plain_port, "/table.json")
                print(plain.line("a plain file", plain))
                for path in PATHS:
                    print(load(port, path).line(path.partition("?")[0], plain))


@contextlib.contextmanager
def plain_server(folder: Path) -> Iterator[int]:
    """Python's own server over a folder, on a free port."""
    code = (
        "import functools, http.server as h, sys\n"
        "h.SimpleHTTPRequestHandler.protocol_version = 'HTTP/1.1'\n"
        "h.SimpleHTTPRequestHandler.disable_nagle_algorithm = True\n"
        "h.SimpleHTTPRequestHandler.log_message = lambda *a: None\n"
        "f = functools.partial(h.SimpleHTTPRequestHandler, directory=sys.argv[1])\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), f)\n"
        "print(s.server_port, flush=True)\n"
        "s.serve_forever()\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline() if process.stdout else 0)
        finally:
            process.kill()


def load(port: int, path: str) -> Load:
    """16 clients ask again and again on connections that they keep."""
    get(port, path)
    seen: list[list[float]] = [[] for _ in range(CLIENTS)]
    start = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(port, path, start, one)) for one in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - start
    return Load(tuple(second for one in seen for second in one), wall_s)


def ask(port: int, path: str, start: float, seen: list[float]) -> None:
    """One client; every answer has to be a good one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    first = connection.getresponse()
    first.read()
    had = {"If-None-Match": first.headers["etag"]} if "etag" in first.headers else {}
    while time.perf_counter() - start < SECONDS:
        began = time.perf_counter()
        connection.request("GET", path, headers=had)
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (200, 304):
            raise SystemExit(f"{path} was answered with {answer.status}")
        seen.append(time.perf_counter() - began)
    connection.close()


def get(port: int, path: str) -> bytes:
    """The body of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


if __name__ == "__main__":
    main()
