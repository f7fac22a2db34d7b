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

from fleetrank.orchestrator.compute.child import (
    QUERY_GRACE_S,
    QUERY_MEMORY_BYTES,
    Child,
    Job,
    JobKind,
    RefusedError,
)

_DEEP = 100_000

STATEMENTS = {
    "huge_string": "SELECT repeat('a', 2000000000)",
    "huge_string_length": "SELECT length(repeat('a', 2000000000))",
    "doubled_string": "SELECT repeat(repeat(repeat('a', 1000), 1000), 1000)",
    "padded_string": "SELECT lpad('a', 2000000000, 'b')",
    "many_strings": "SELECT repeat('a', 1000000) FROM range(100000)",
    "sorted_strings": "SELECT repeat('a', 100000) || i AS s FROM range(1000000) t(i) ORDER BY s",
    "string_agg": "SELECT string_agg(repeat('a', 10000), ',') FROM range(10000000)",
    "string_concat": "SELECT list_aggregate(list_transform(range(100000000), lambda x: 'abc'), "
    "'string_agg', '')",
    "huge_blob": "SELECT repeat('\\xFF'::BLOB, 2000000000)",
    "upper_of_huge": "SELECT upper(repeat('ä', 500000000))",
    "replace_grows": "SELECT replace(repeat('a', 100000000), 'a', 'bbbbbbbbbbbbbbbb')",
    "reversed": "SELECT reverse(repeat('é', 400000000))",
    "cross_join": "SELECT count(*) FROM range(10000000) a, range(10000000) b",
    "cross_join_sum": "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b",
    "self_join": "SELECT count(*) FROM measurements a, measurements b, measurements c, "
    "measurements d WHERE a.model < d.model",
    "unequal_join": "SELECT count(*) FROM range(3000000) a JOIN range(3000000) b "
    "ON hash(a.range) < hash(b.range)",
    "endless_recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT max(n) FROM r",
    "growing_recursion": "WITH RECURSIVE r(s) AS (SELECT 'a' UNION ALL SELECT s || s FROM r) "
    "SELECT length(s) FROM r",
    "list_of_all": "SELECT list(i) FROM range(3000000000) t(i)",
    "range_value": "SELECT range(1000000000)",
    "nested_lists": "SELECT list_transform(range(30000), lambda x: range(30000))",
    "sorted_list": "SELECT list_sort(range(200000000), 'DESC')",
    "distinct": "SELECT count(DISTINCT hash(i)) FROM range(10000000000) t(i)",
    "grouped": "SELECT hash(i) AS h, count(*) FROM range(10000000000) t(i) GROUP BY h",
    "window": "SELECT sum(i) OVER (ORDER BY hash(i) ROWS 1000000 PRECEDING) FROM range(10000000) "
    "t(i)",
    "median": "SELECT median(hash(i)) FROM range(10000000000) t(i)",
    "regex": "SELECT regexp_matches(repeat('a', 100000000), '(a|aa|aaa){1,900}b')",
    "regex_all": "SELECT regexp_extract_all(repeat('ab', 100000000), '.')",
    "levenshtein": "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "series": "SELECT count(*) FROM generate_series(TIMESTAMP '0001-01-01', "
    "TIMESTAMP '9999-12-31', INTERVAL 1 MICROSECOND)",
    "deep_nesting": f"SELECT {'(' * _DEEP}1{')' * _DEEP}",
    "deep_sum": f"SELECT {'1+' * _DEEP}1",
    "giant_in_list": f"SELECT 1 WHERE 1 IN ({','.join(str(n) for n in range(300_000))})",
    "many_columns": f"SELECT {', '.join(f'repeat(chr(97), 10000000) AS c{n}' for n in range(500))}",
    "huge_format": "SELECT format('{:2000000000d}', 1)",
    "factorial_bits": "SELECT bitstring('1', 2000000000)::VARCHAR",
    "huge_json": "SELECT json_array(range(300000000))",
}  # fmt: skip

QUICK = (
    "huge_string", "padded_string", "many_strings", "string_agg", "replace_grows", "cross_join",
    "endless_recursion", "list_of_all", "nested_lists", "regex", "levenshtein", "deep_nesting",
    "giant_in_list", "many_columns", "huge_format",
)  # fmt: skip
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
