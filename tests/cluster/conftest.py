"""One fleet of three hosts for all cases, and the table of what became of each fault."""

from collections.abc import Iterator

import pytest
from namespace_hosts import HostNetwork, host_network, why_impossible
from ray_cluster import RayCluster

TABLE = pytest.StashKey[list[tuple[str, ...]]]()
_HEADER = ("fault", "noticed s", "recovered s", "repeats", "failed attempts", "what became of it")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLE] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = config.stash.get(TABLE, [])
    if not rows:
        return
    terminalreporter.section("fault matrix")
    widths = [max(map(len, column)) for column in zip(_HEADER, *rows, strict=True)]
    for row in (_HEADER, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(line.rstrip())


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    """Hosts to be; skipped with the reason where there can be none."""
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
    with host_network(tmp_path_factory.mktemp("hosts")) as found:
        yield found


@pytest.fixture(scope="session")
def cluster(network: HostNetwork) -> RayCluster:
    """Ray on three hosts, each started again when it ends; `head` is the first."""
    found = RayCluster(network=network)
    for name in ("head", "left", "right"):
        found.start(network.add(name))
    return found
