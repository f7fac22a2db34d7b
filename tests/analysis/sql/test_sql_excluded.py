"""SQL calls the same rows excluded as every table does."""

import duckdb
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetrank.analysis.sql.sql_views import register_every_row
from fleetrank.analysis.stored.exclusions import Exclusion, Exclusions, excluded_column

pytestmark = pytest.mark.slow

_texts = st.text(alphabet="aA*.%_\\[]'-#\n", min_size=1, max_size=3)


@settings(max_examples=60)
@example(rows=[("s", "axb", None, None), ("s", "a.b", None, None)], meant=[("s", "a.*")])
@example(rows=[("s", None, "a[1]b", None), ("s", None, "a1b", None)], meant=[("s", "*[1]b")])
@example(rows=[("s", "ab", "a\nb", None), ("s", "a", "b", "c")], meant=[("s", "*a"), ("s", "a*b")])
@example(
    rows=[("s", "a", "p", "decode@1"), ("s", "a", "p", None)], meant=[("s", "a decode@* on p")]
)
@example(rows=[("s", "a", "p", "decode@1"), ("s", "b", "p", None)], meant=[("s", "* image on p")])
@given(
    rows=st.lists(st.tuples(st.sampled_from("st"), *[st.none() | _texts] * 3)),
    meant=st.lists(st.tuples(st.sampled_from("st"), st.none() | _texts), max_size=4),
)
def test_sql_and_tables_leave_the_same_out(rows, meant) -> None:
    """Two programs read one pattern."""
    entries = tuple(
        Exclusion(number=n, sweep_id=sweep, pattern=pattern, reason=f"'{n}", excluded_utc="")
        for n, (sweep, pattern) in enumerate(meant, start=1)
    )
    names = ("sweep_id", "model", "platform_key", "workload")
    stored = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    expected = stored.with_columns(excluded_column(Exclusions(entries=entries)))[
        "excluded"
    ].to_list()
    with duckdb.connect() as connection:
        connection.register("stored", stored.to_arrow(compat_level=pl.CompatLevel.oldest()))
        register_every_row(connection, "stored", entries)
        found = connection.sql("SELECT excluded FROM all_measurements").fetchall()
    assert [reason for (reason,) in found] == expected
