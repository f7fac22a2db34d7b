"""One fleet of three hosts for all cases, and the table of what became of each fault."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_driver import TABLE_HEAD, Case, ClusterDriver
from namespace_hosts import HostNetwork, RayCluster, host_network, why_impossible
from tiny_onnx import save_tiny_onnx

TABLE = pytest.StashKey[list[tuple[str, ...]]]()
_NUMBERS = itertools.count(1)
HOSTS = ("head", "left", "right")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLE] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = config.stash.get(TABLE, [])
    if not rows:
        return
    terminalreporter.section("fault matrix")
    widths = [max(map(len, column)) for column in zip(TABLE_HEAD, *rows, strict=True)]
    for row in (TABLE_HEAD, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(line.rstrip())


@pytest.fixture(scope="session")
def network() -> Iterator[HostNetwork]:
    """Hosts to be; skipped with the reason where there can be none."""
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
    # A short path: Ray's sockets lie below a host's home, and their paths have at most 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="h-", ignore_cleanup_errors=True) as folder,
        host_network(Path(folder)) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def cluster(network: HostNetwork) -> RayCluster:
    """Ray on three hosts, each started again when it ends; `head` is the first."""
    found = RayCluster(network=network)
    for name in HOSTS:
        found.start(network.add(name))
    return found


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_onnx(tmp_path_factory.mktemp("onnx") / "tiny.onnx")


@pytest.fixture
def case(cluster: RayCluster, onnx_file: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A fleet that is well and a workspace of two models on its head, or on the given host."""
    cluster.mend(HOSTS)
    host = cluster.network.hosts[getattr(request, "param", "head")]
    root = host.home / f"ws{next(_NUMBERS)}"
    driver = ClusterDriver(host=host, address=cluster.address, root=root)
    driver.make(onnx_file, n_models=2)
    found = Case(cluster=cluster, driver=driver, table=request.config.stash[TABLE])
    yield found
    if found.sweep is not None and found.sweep.process.is_running:
        found.sweep.process.kill()
