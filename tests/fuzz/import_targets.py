"""Tables of others: timm's CSV files, AI Hub's YAML files, ExecuTorch's logs, any CSV."""

import csv
import io
from collections.abc import Iterable

import yaml
from hypothesis import strategies as st
from mutation import HOSTILE, NUMBERS, as_toml, as_yaml, documents, mutated, one_of
from target import ROOT, Target

from fleetrank.analysis.importers.csv_map import parse_csv
from fleetrank.analysis.importers.model_facts import fill, parse_facts
from fleetrank.analysis.importers.qai_hub import parse_qai_hub
from fleetrank.analysis.importers.release import (
    Release,
    drop_reason,
    load_equivalences,
    require_complete,
)
from fleetrank.analysis.importers.timm import ACCURACY_FILE, parse_timm
from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.orchestrator.store.parts import to_frame

DATA = ROOT / "tests" / "data"
TIMM = tuple(path.read_bytes() for path in sorted((DATA / "timm").glob("benchmark-infer*.csv")))
ACCURACY = (DATA / "timm" / ACCURACY_FILE).read_bytes()
HUB = tuple(path.read_bytes() for path in sorted((DATA / "qai_hub").rglob("perf.yaml")))
HUB_INFO = tuple(path.read_bytes() for path in sorted((DATA / "qai_hub").rglob("[in]*.yaml")))
TIMM_NAME = "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
SEPARATOR = b"\n=====\n"
"""Between the files of one case."""
TABLE = (
    b"net;phone;arithmetic;time;rss;kind;on;of\nr18;Pixel 7;fp32;12.5;30;mean;54;65\n"
    b"Other;Pixel 7;fp32;1,014.45;;;;\n"
)
MAPPING = as_toml(
    {
        "source": {
            "name": "lab", "version": "1", "licence": "MIT", "sample_kind": "tool_summary",
            "delimiter": ";",
        },
        "columns": {
            "model": "net", "device": "phone", "precision": "arithmetic", "latency": "time",
            "memory": "rss", "statistic": "kind", "backend_nodes": "on", "graph_nodes": "of",
        },
        "constants": {
            "tier": "edge", "runtime": "tflite", "batch": 1, "memory_metric": "maxrss_growth",
        },
        "units": {"latency": "ms", "memory": "MiB"},
        "missing": {"latency": [-1, 0]},
        "models": {"r18": "resnet18"},
    }
)  # fmt: skip
FACTS = b"model,flops,params,accuracy,family\nr18,3.6G,11.7M,69.76,standard_cnn\nOther,,1,2,\n"
FACT_ROW = {"source_ref": "lab.csv"}
CELLS = tuple(str(text) for text in (*HOSTILE, *NUMBERS, "12.5", "1,014.45", "224", "resnet18"))


def timm(data: bytes) -> object:
    bench, _, accuracy = data.partition(SEPARATOR)
    return _fits_the_table(parse_timm({TIMM_NAME: bench, ACCURACY_FILE: accuracy}))


def qai_hub(data: bytes) -> object:
    perf, _, rest = data.partition(SEPARATOR)
    info, _, numerics = rest.partition(SEPARATOR)
    folder = "v0.46.1/resnet18"
    files = {"perf.yaml": perf, "info.yaml": info, "numerics.yaml": numerics}
    return _fits_the_table(
        parse_qai_hub({f"{folder}/{name}": content for name, content in files.items() if content})
    )


def mapped_csv(data: bytes) -> object:
    table, _, mapping = data.partition(SEPARATOR)
    return _fits_the_table(parse_csv("lab.csv", table, mapping or MAPPING))


def model_facts(data: bytes) -> object:
    found = parse_facts("models.csv", data)
    for row in found.columns.values():
        for name, words in _WORDS:
            assert row.get(name) in words, f"{name} has a word of its own"
    rows, notes = fill(found, "lab", [{"model": f"lab:{name}"} | FACT_ROW for name in found.lines])
    assert to_frame(rows).height == len(found.lines)
    assert not notes
    return [(row["model"], row.get("flops"), row.get("accuracy_top1")) for row in rows]


def _fits_the_table(releases: Iterable[Release]) -> object:
    """What every importer owes the table: its columns, its words, its types."""
    answer = []
    for release in releases:
        require_complete(release)
        for row in release.rows:
            on, of = row.get("backend_nodes"), row.get("graph_nodes")
            counts = [count for count in (0, on, of) if count is not None]
            assert drop_reason(row) or counts == sorted(counts), "more nodes than the graph has"
            latency = row.get("latency_p50_ns")
            assert (latency is None) == (drop_reason(row) is not None), "counts without a latency"
            assert latency is None or latency > 0, "a latency of nothing"
            for name, words in _WORDS:
                assert row.get(name) in words, f"{name} has a word of its own"
        assert to_frame(release.rows).height == len(release.rows)
        answer.append((release.version, release.aliases, release.notes, release.rows))
    return answer


_WORDS = [(column.name, {None, *column.values}) for column in COLUMNS if column.values is not None]


def _csv_inputs(samples: tuple[bytes, ...], delimiter: str) -> st.SearchStrategy[bytes]:
    """Samples with other cells, through a CSV writer, and samples with bytes changed."""
    cell = st.tuples(st.integers(0, 30), st.integers(0, 30), one_of(CELLS))
    changed = st.builds(
        _with_cells, one_of(samples), st.lists(cell, max_size=5), st.just(delimiter)
    )
    words = tuple(word.encode() for word in (delimiter, '"', '""', "\n", f"{delimiter * 20}\n"))
    return st.one_of(changed, changed, mutated(samples, words))


def _with_cells(sample: bytes, cells: list[tuple[int, int, str]], delimiter: str) -> bytes:
    rows = list(csv.reader(io.StringIO(sample.decode()), delimiter=delimiter))
    for at_row, at_column, text in cells:
        row = rows[at_row % len(rows)]
        if row:
            row[at_column % len(row)] = text
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _joined(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(SEPARATOR.join)


def _hub_inputs() -> st.SearchStrategy[bytes]:
    found = [yaml.safe_load(sample) for sample in HUB]
    keys = tuple(dict.fromkeys(key for document in found for key in _keys(document)))
    document = st.one_of(*(documents(one, keys, as_yaml) for one in found))
    perf = st.one_of(document, document, mutated(HUB))
    return _joined(perf, *[mutated((*HUB_INFO, b""))] * 2)


def _keys(value: object) -> Iterable[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


TARGETS = (
    Target(timm, _joined(_csv_inputs(TIMM, ","), _csv_inputs((ACCURACY,), ","))),
    Target(qai_hub, _hub_inputs()),
    Target(mapped_csv, _joined(_csv_inputs((TABLE,), ";"), mutated((MAPPING, b"", b"")))),
    Target(model_facts, _csv_inputs((FACTS,), ",")),
)
load_equivalences("timm")
