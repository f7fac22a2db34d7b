"""Statements that take time or memory without end stay inside their limits, in whatever way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import expensive_sql
import pytest
from fleet_rows import NETS, PLACES, write_results

from fleetrank.orchestrator.compute.child import QUERY_GRACE_S, QUERY_MEMORY_BYTES

_TIMEOUT_S = 0.1
_SLACK_S = 10.0
"""A busy host notices a limit late, and takes a while to take a process's memory back."""
_LIMIT_S = _TIMEOUT_S + QUERY_GRACE_S + _SLACK_S
_KINDS = {"answer", "QueryError"}
_CAUSES = ("longer than 0.1 s", "1GB", "MiB", "ended the process", "depth limit")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(expensive_sql.DAILY, id="daily"),
        pytest.param(tuple(expensive_sql.STATEMENTS), id="all", marks=pytest.mark.thorough),
    ],
)
def test_every_expensive_statement_ends_in_time_and_memory_and_says_which_limit(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    results = write_results(tmp_path / "results", nets=NETS[:5], places=PLACES[:2], n_samples=3)
    ended = subprocess.run(
        [sys.executable, "-P", expensive_sql.__file__, str(results), str(_TIMEOUT_S), *names],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout)
    assert [one["name"] for one in found["outcomes"]] == list(names)
    late = [one for one in found["outcomes"] if one["seconds"] > _LIMIT_S]
    assert not late
    strange = [
        one
        for one in found["outcomes"]
        if one["kind"] not in _KINDS
        or (one["message"] and not any(cause in one["message"] for cause in _CAUSES))
    ]
    assert not strange
    assert found["peak_bytes"] < QUERY_MEMORY_BYTES
