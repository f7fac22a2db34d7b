"""What programs write for programs: the codec, journals, spools, raw logs, parts."""

import json
import math

import orjson
from hypothesis import strategies as st
from mutation import HOSTILE, arbitrary, as_json, documents, mutated, one_of
from target import Target, as_file, scratch

from fleetrank.analysis.stored.columns import ROW_KEY, SCHEMA, SCHEMA_VERSION
from fleetrank.analysis.stored.part_list import MEASUREMENTS
from fleetrank.device_agents.contract.measurement import Failure, Measurement, WorkerFacts
from fleetrank.device_agents.contract.protocol import decode_request, encode_request
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.hosts.files import HostFiles
from fleetrank.device_agents.hosts.spool import Spool
from fleetrank.foundation.codec import from_json, parse_json, to_json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    Family,
    Flag,
    Format,
    MemoryMetric,
    Origin,
    Runtime,
    Status,
)
from fleetrank.models.cards.card import ExportRequest, ModelCard, ResolvedCard, Source, Weights
from fleetrank.models.export.process import ExportAnswer
from fleetrank.orchestrator.store.journal import Entry, Journal, make_line
from fleetrank.orchestrator.store.parts import to_frame

TASK = MeasureTask(
    task_id="s/c/1/0", artifact_path="/a", artifact_sha256="0" * 64,
    execution=Execution(runtime=Runtime.ONNX, backend="cpu", options=(("x", 1), ("y", True))),
)  # fmt: skip
MEASUREMENT = Measurement(
    task_id="s/c/1/0",
    status=Status.OK,
    origin=Origin.MEASURED,
    samples_ns=(1, 2, 3),
    flags=(Flag.SPREAD,),
    memory_metric=MemoryMetric.SIMULATED,
    worker=WorkerFacts(settings=(("threads", 2), ("x", 0.5), ("on", True)), affinity=(0, 1)),
    failure=Failure(kind=ErrorKind.CRASHED, message="é\n", remedy="", is_transient=True),
    raw_log="line\nline",
)
ROW = {name: "x" if not SCHEMA[name].is_integer() else 0 for name in ROW_KEY} | {
    "schema_version": SCHEMA_VERSION, "samples_ns": [1, 2, 3], "flags": ["drift"],
    "latency_p50_ns": 5, "model": "resnet18", "status": "ok", "is_charging": True,
    "started_utc": "2026-01-01T00:00:00+00:00",
}  # fmt: skip
EXPORT = ExportRequest(
    model=ResolvedCard(
        card=ModelCard(name="m", family=Family.HYBRID, source=Source.FILE, entry="/m.onnx"),
        sha256="c" * 64,
    ),
    weights=Weights(),
    format=Format.ONNX,
)
STAGED = {
    "path": "/m", "format": "onnx", "versions": [["onnx", "1"]], "inputs_path": None,
    "reference_path": "/r", "cost": {"macs": 1, "parameters": 2, "method": "counted"},
}  # fmt: skip
ANSWER = {"staged": STAGED, "message": "m", "remedy": "r", "lacks_trust": False}
JSON_SAMPLES = (to_json(MEASUREMENT).encode(), as_json(ROW), b'{"a":[1,1.5e3,"\\ud800",null]}')


def json_text(data: bytes) -> object:
    """Held against another parser: what both read, they read alike."""
    text = data.decode("utf-8", "replace")
    value = parse_json(text)
    try:
        other = orjson.loads(text)
    except orjson.JSONDecodeError:
        return value  # nested deeper, or half a surrogate pair
    assert _same(value, other)
    return value


def _same(ours: object, other: object) -> bool:
    if isinstance(ours, dict):
        return (
            isinstance(other, dict)
            and list(ours) == list(other)
            and all(_same(value, other[key]) for key, value in ours.items())
        )
    if isinstance(ours, list):
        return isinstance(other, list) and len(ours) == len(other) and all(map(_same, ours, other))
    if type(ours) is int and type(other) is float:
        return not -(2**63) <= ours < 2**64  # orjson has 64 bits
    if isinstance(ours, float) and math.isinf(ours):
        return other is None or ours == other
    return type(ours) is type(other) and ours == other


def measurement(data: bytes) -> object:
    found = from_json(Measurement, data.decode("utf-8", "replace"))
    assert from_json(Measurement, to_json(found)) == found
    return found


def worker_request(data: bytes) -> object:
    found = decode_request(data.decode("utf-8", "replace"))
    assert decode_request(encode_request(found)) == found
    return found


def export_request(data: bytes) -> object:
    return from_json(ExportRequest, data.decode("utf-8", "replace"))


def export_answer(data: bytes) -> object:
    return from_json(ExportAnswer, data.decode("utf-8", "replace")).result()


def journal(data: bytes) -> object:
    """Every line is a row or named; a row appended after any damage is read back."""
    path = as_file(data, f"{ROW['sweep_id']}.jsonl")
    found = list(Journal(path).scan())
    rows = [item.row for item in found if isinstance(item, Entry) and item.table == MEASUREMENTS]
    with Journal(path) as again:
        again.append(ROW)
    assert list(Journal(path).rows())[-1] == ROW
    return found, _frame_height(rows)


def _frame_height(rows: list[dict[str, object]]) -> int | str:
    try:
        return to_frame(rows).height
    except FleetError as error:
        return type(error).__name__


def spool(data: bytes) -> object:
    """What a host kept is offered again, and a new measurement is kept beside any damage."""
    path = as_file(data, "spool/spool.jsonl")
    opened = Spool(path)
    kept = opened.of_sweep("s")
    opened.add(MEASUREMENT)
    again = Spool(path)
    assert MEASUREMENT.task_id in again
    return kept


def host_file_name(data: bytes) -> object:
    place = HostFiles(scratch()).path(data.decode("utf-8", "surrogateescape"))
    assert place.resolve().parent == scratch(), "a name leaves the folder"
    return place.name


def _json_inputs(base: object, extra: tuple[str, ...] = ()) -> st.SearchStrategy[bytes]:
    keys = tuple(base) if isinstance(base, dict) else ()
    return st.one_of(documents(base, (*keys, *extra), as_json), mutated((as_json(base),)))


def _journal_inputs() -> st.SearchStrategy[bytes]:
    row = documents(ROW, tuple(SCHEMA), as_json).map(lambda line: line.replace(b"\n", b" "))
    end = one_of((b"\n", b"\n", b"\n\n", b"", b"\r\n", b"\0"))
    parts = st.tuples(row, end).map(b"".join)
    whole = make_line(ROW)
    return st.one_of(
        st.lists(parts, max_size=4).map(b"".join), mutated((whole * 3, whole)), arbitrary()
    )


TARGETS = (
    Target(json_text, st.one_of(mutated(JSON_SAMPLES), _json_inputs(ROW), arbitrary())),
    Target(measurement, _json_inputs(json.loads(to_json(MEASUREMENT)))),
    Target(
        worker_request,
        _json_inputs(json.loads(encode_request(TASK)), ("measure", "infer", "options")),
    ),
    Target(export_request, _json_inputs(json.loads(to_json(EXPORT))), share=0.25),
    Target(export_answer, _json_inputs(ANSWER, ("staged", "message", "remedy")), share=0.5),
    Target(journal, _journal_inputs()),
    Target(
        spool,
        mutated(((to_json(MEASUREMENT) + "\n").encode() * 2, as_json({"task_id": "s/x"}) + b"\n")),
    ),
    Target(
        host_file_name,
        st.one_of(one_of(HOSTILE).map(str.encode), mutated((b"0" * 64 + b".onnx", b".."))),
        share=0.5,
    ),
)
