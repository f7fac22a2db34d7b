"""Statements that take time or memory without end, and what became of each in a limited child.

As a program (`python expensive_sql.py RESULTS TIMEOUT_S [NAME...]`) it runs them and prints JSON:
its own process is small, so that the peak of the children it has waited for is theirs.
"""

import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fleetrank.orchestrator.compute.child import QUERY_GRACE_S, QUERY_MEMORY_BYTES, Child
from fleetrank.orchestrator.compute.jobs import Job, JobKind, RefusedError

_DEEP = 100_000

STATEMENTS = {
    "huge_string": "SELECT repeat('a', 2000000000)",
    "padded_string": "SELECT lpad('a', 2000000000, 'b')",
    "many_strings": "SELECT repeat('a', 1000000) FROM range(100000)",
    "string_agg": "SELECT string_agg(repeat('a', 10000), ',') FROM range(10000000)",
    "replace_grows": "SELECT replace(repeat('a', 100000000), 'a', 'bbbbbbbbbbbbbbbb')",
    "cross_join": "SELECT count(*) FROM range(10000000) a, range(10000000) b",
    "endless_recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT max(n) FROM r",
    "list_of_all": "SELECT list(i) FROM range(3000000000) t(i)",
    "nested_lists": "SELECT list_transform(range(30000), lambda x: range(30000))",
    "regex": "SELECT regexp_matches(repeat('a', 100000000), '(a|aa|aaa){1,900}b')",
    "levenshtein": "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "deep_nesting": f"SELECT {'(' * _DEEP}1{')' * _DEEP}",
    "giant_in_list": f"SELECT 1 WHERE 1 IN ({','.join(str(n) for n in range(300_000))})",
    "many_columns": f"SELECT {', '.join(f'repeat(chr(97), 10000000) AS c{n}' for n in range(500))}",
    "huge_format": "SELECT format('{:2000000000d}', 1)",
}  # fmt: skip
"""One of each way to take time or memory."""
DAILY = ("huge_string", "cross_join", "deep_nesting")
"""Refused, out of time, not to be parsed."""


def outcomes(results: Path, timeout_s: float, names: Sequence[str]) -> list[dict[str, object]]:
    """How each statement ended, and after how long."""
    child = Child(results, memory_limit_bytes=QUERY_MEMORY_BYTES, threads=2, is_quiet=True)
    found = []
    for name in names:
        sql = STATEMENTS[name]
        # A new child after a kill starts outside of the time that is measured, as for a user.
        child.ask(Job(kind=JobKind.QUERY, name="SELECT 1", timeout_s=60), "f", timeout_s=60)
        job = Job(kind=JobKind.QUERY, name=sql, timeout_s=timeout_s, max_rows=1000)
        started_s = time.monotonic()
        try:
            child.ask(job, "f", timeout_s=timeout_s + QUERY_GRACE_S)
            kind, message = "answer", ""
        except RefusedError as refused:
            kind, message = refused.kind, refused.message
        took_s = time.monotonic() - started_s
        found.append({"name": name, "seconds": took_s, "kind": kind, "message": message})
    child.close()
    return found


if __name__ == "__main__":
    ended = outcomes(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:] or list(STATEMENTS))
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"outcomes": ended, "peak_bytes": peak_kib * 1024}))
