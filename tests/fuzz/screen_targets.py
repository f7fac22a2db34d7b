"""What a person or a program types, and what stands on a screen afterwards."""

import csv
import html.parser
import io
import json
import re
import unicodedata
from functools import cache
from importlib import resources

import duckdb
import jinja2
import polars as pl
from hypothesis import strategies as st
from mutation import NUMBERS, arbitrary, mutated, one_of, texts
from pydantic import ValidationError
from rich.console import Console
from target import Target

from fleetrank.analysis.errors import AnalysisError, QueryError
from fleetrank.analysis.report.html_table import html_table
from fleetrank.analysis.report.page import json_block
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.sql import _only_select, lock_down
from fleetrank.analysis.tables.formats import render
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.visible_text import visible
from fleetrank.orchestrator.cli.main import take_shared_options
from fleetrank.orchestrator.cli.terminal import print_on_terminal
from fleetrank.orchestrator.cli.visible_streams import VisibleStream
from fleetrank.orchestrator.workspace.selectors import Selectors

SEPARATOR = "\x1f"
SQL = (
    "SELECT model, runtime, median(latency_p50_ns) / 1e6 AS ms FROM measurements "
    "WHERE status = 'ok' GROUP BY ALL ORDER BY ms",
    "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
    "FROM measurements SELECT count(*)",
    "SELECT unnest(samples_ns) FROM measurements LIMIT 3",
    "SELECT * FROM read_csv('/etc/passwd')",
    "COPY (SELECT 1) TO '/tmp/x'",
    "ATTACH 'x.db'; SELECT 1",
    "SELECT $1, ?",
    "PRAGMA version",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT DATE '5877642-06-25'",
)
SQL_WORDS = tuple(
    map(
        str.encode,
        (
            "SELECT ", " FROM ", "measurements", "(", ")", "'", '"', "$$", "--", "/*", "*/", ";",
            "INSERT INTO ", "CREATE TABLE ", "SET ", "INSTALL ", "CALL ", "::", "[1]", "{'a': 1}",
            "PIVOT ", "DESCRIBE ", "SUMMARIZE ", "VALUES (1)", "\\0", "E'\\x'", "U&'\\+00'",
            "getenv('HOME')",
        ),
    )
)  # fmt: skip


def on_screen(text: str) -> str:
    """What becomes of a text on its way to a terminal."""
    file = io.BytesIO()
    stream = VisibleStream(io.TextIOWrapper(file, encoding="utf-8"))
    stream.write(text)
    stream.flush()
    return file.getvalue().decode()


def sql_statement(data: bytes) -> object:
    """A statement that passes is one SELECT, for another look at it, too."""
    # A connection each: one that lives until the interpreter ends is reported as a leak.
    with duckdb.connect(":memory:") as connection:
        lock_down(connection)
        statement = _only_select(connection, data.decode("utf-8", "replace"))
        again = connection.extract_statements(statement.query)
        assert [one.type for one in again] == [duckdb.StatementType.SELECT]
        return str(statement.type)


def selectors(data: bytes) -> object:
    fields = data.decode("utf-8", "replace").split(SEPARATOR)
    names = list(Selectors.model_fields)
    given: dict[str, object] = {}
    for at, text in enumerate(fields[:8]):
        name = names[(at + len(text)) % len(names)]
        given["set" if name == "settings" else name] = [text] if name == "settings" else text
    return Selectors.model_validate(given).selection()


def shared_options(data: bytes) -> object:
    context, rest = take_shared_options(data.decode("utf-8", "replace").split(SEPARATOR))
    assert all(SEPARATOR not in word for word in rest)
    return context, rest


def terminal_table(data: bytes) -> object:
    """No name of a file, a phone or a table moves the cursor or turns the text around."""
    out = io.StringIO()
    console = Console(file=out, width=20 + len(data) % 100, force_terminal=True, color_system=None)
    print_on_terminal(_table(data), console)
    _no_control(on_screen(out.getvalue()))
    return out.getvalue()


def table_formats(data: bytes) -> object:
    """Each format can be read back, with as many rows and columns as went in."""
    table = _table(data)
    height, width = table.frame.shape
    content = json.loads(render(table, "json"))
    assert (content["title"], len(content["rows"])) == (table.title, height)
    rows = list(csv.reader(io.StringIO(render(table, "csv"), newline="")))
    assert [len(row) for row in rows] == [width] * (height + 1)
    _no_control(on_screen(render(table, "table")))
    marked = [line for line in render(table, "markdown").split("\n") if line.startswith("|")]
    assert len(marked) == height + 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in marked} == {width + 1}
    return render(table, "latex")


def page_table(data: bytes) -> object:
    """Whatever the names are, the page has the elements and attributes of harmless ones."""
    hostile, harmless = (_elements(_page(table)) for table in (_table(data), _harmless(data)))
    assert hostile == harmless
    return hostile


def json_in_page(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    block = str(json_block({text: [text]}))
    assert not set(block) & set("<>&")
    assert json.loads(block) == {visible(text): [visible(text)]}
    return block


def _no_control(text: str) -> None:
    """Neither commands for a terminal nor marks that turn the direction of what follows."""
    seen = {
        letter
        for letter in text.replace("\r\n", "\n")
        if letter in _MARKS
        or (letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cs"))
    }
    assert not seen, f"control characters on the screen: {sorted(map(ascii, seen))[:3]}"


_MARKS = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _table(data: bytes) -> Table:
    words = data.decode("utf-8", "replace").split(SEPARATOR)
    return _made(words)


def _harmless(data: bytes) -> Table:
    """A table of the same shape whose texts are letters."""
    words = data.decode("utf-8", "replace").split(SEPARATOR)
    return _made([f"w{at}" if word else "" for at, word in enumerate(words)])


def _made(words: list[str]) -> Table:
    title, note, *cells = (*words, "", "")
    rows = cells[: len(cells) // 2 * 2] or ["", ""]
    frame = pl.DataFrame(
        {
            "model": rows[::2],
            "device": rows[1::2],
            "n_rows": list(range(len(rows) // 2)),
            "flags": [[text, "drift"] for text in rows[::2]],
        }
    )
    return Table(title=title, frame=frame, notes=(note,))


def _page(table: Table) -> str:
    shown = Shown(platforms={}, names={}, models=(), cells=pl.DataFrame(), notes=(), left_out={})
    made = html_table("t", _plain(table), shown)
    return str(_macro()(made))


def _plain(table: Table) -> Table:
    """Without models and devices, of which the page shows those that it knows."""
    return Table(
        title=table.title,
        frame=table.frame.rename({"model": "name", "device": "place"}),
        notes=table.notes,
    )


@cache
def _macro() -> object:
    folder = resources.files("fleetrank.analysis").joinpath("report/templates")
    text = folder.joinpath("grid.html.j2").read_text(encoding="utf-8")
    macro = text[: text.index("{%- endmacro %}") + len("{%- endmacro %}")]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(macro).module.grid  # type: ignore[attr-defined]


def _elements(page: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, *(name for name, _ in attrs)))

        def handle_endtag(self, tag: str) -> None:
            found.append((f"/{tag}",))

        def handle_comment(self, data: str) -> None:
            found.append(("comment",))

    reader = Reader()
    reader.feed(page)
    reader.close()
    return found


def _words(least: int, most: int) -> st.SearchStrategy[bytes]:
    word = st.one_of(texts, one_of(tuple(map(str, NUMBERS))), st.text(max_size=8))
    return st.lists(word, min_size=least, max_size=most).map(
        lambda found: SEPARATOR.join(found).encode("utf-8", "replace")
    )


OPTIONS = (
    "--workspace",
    "--workspace=",
    "--workspace=x",
    "-v",
    "-vv",
    "--debug",
    "--",
    "sweep",
    "run",
)
TARGETS = (
    # The caller turns errors of the library into a QueryError.
    Target(
        sql_statement,
        st.one_of(mutated(tuple(map(str.encode, SQL)), SQL_WORDS), arbitrary(80)),
        may_raise=(QueryError, duckdb.Error),
    ),
    Target(selectors, _words(0, 8), may_raise=(FleetError, ValidationError)),
    Target(
        shared_options,
        st.lists(st.one_of(one_of(OPTIONS), texts), max_size=6).map(
            lambda found: SEPARATOR.join(found).encode("utf-8", "replace")
        ),
        share=0.5,
    ),
    Target(terminal_table, _words(2, 8)),
    Target(table_formats, _words(2, 8), may_raise=(AnalysisError,)),
    Target(page_table, _words(2, 8)),
    Target(json_in_page, _words(1, 2)),
)
