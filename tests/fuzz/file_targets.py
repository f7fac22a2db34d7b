"""Files that people write and files that the program keeps of them: YAML, TOML, JSON."""

import json
from functools import cache

import polars as pl
from hypothesis import strategies as st
from mutation import HOSTILE, RUNS, arbitrary, as_json, as_toml, as_yaml, documents, mutated, one_of
from pydantic import ValidationError
from target import ROOT, Target, as_file, scratch

from fleetrank.analysis.importers.csv_map import read_mapping
from fleetrank.analysis.stored.exclusions import FILE as EXCLUSIONS_FILE
from fleetrank.analysis.stored.exclusions import excluded_column, exclusion_notes, read_exclusions
from fleetrank.analysis.stored.sweep_record import Provenance
from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.foundation.errors import FleetError
from fleetrank.models.cards.card import CardKeys
from fleetrank.models.cards.zoo import load_user_card
from fleetrank.orchestrator.cli import devices_command
from fleetrank.orchestrator.progress_file import read_progress
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.fleet import this_host
from fleetrank.orchestrator.sweep.sweep_run import WrittenSpec, new_record, setup_of_record
from fleetrank.orchestrator.sweep.sweep_setup import plan_sweep
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, device_text
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec, load_spec
from fleetrank.orchestrator.workspace.workspace import Workspace
from fleetrank.orchestrator.workspace.yaml_file import parse_file, read_yaml

SWEEPS = tuple(path.read_bytes() for path in sorted((ROOT / "sweeps").glob("*.yaml")))
SWEEP = {
    "name": "s", "models": ["resnet18", "all"], "runtimes": ["onnx"], "devices": ["local-cpu"],
    "threads": [1, 2], "modes": {"torch": "compile"}, "backends": {"tflite": ["xnnpack"]},
    "runtime_options": {"onnx": {"spinning": False}}, "affinity": [0, 1],
    "weights": {"kind": "seeded", "seed": 1}, "weights_of": {"resnet18": "pretrained"},
    "measure": {"min_runs": 10, "half_width": 0.01}, "limits": {"memory_limit_bytes": "2GiB"},
    "phones": {"clusters": "big"}, "hosts": {"silent_s": 30.0, "takeover": True},
}  # fmt: skip
DEVICE = {
    "name": "d", "kind": "android", "host": "lab", "options": {"serial": "S", "a": 1, "b": 0.5},
    "registration": {
        "registered_utc": "2026-01-01T00:00:00+00:00", "facts": {"model": "Pixel"},
        "clusters": [[0, 1], [2]], "canary_latency_ns": [10, 11],
    },
}  # fmt: skip
CARD = {
    "name": "mine", "family": "mobile_cnn", "source": "file", "entry": "mine.onnx",
    "input_size": 224, "accuracy_top1": 70.0, "accuracy_source": "paper", "macs": 1000,
}  # fmt: skip
MAPPING = {
    "source": {"name": "lab", "version": "1", "licence": "MIT", "sample_kind": "tool_summary"},
    "columns": {"model": "net", "device": "phone", "precision": "p", "latency": "time"},
    "constants": {"tier": "edge", "runtime": "tflite", "batch": 1},
    "units": {"latency": "ms"},
    "missing": {"latency": [-1, 0]},
    "models": {"r18": "resnet18"},
}
EXCLUSIONS = {
    "next_number": 3,
    "exclusions": [
        {
            "number": number, "sweep_id": "s-20260101T000000Z-abcd", "pattern": pattern,
            "reason": "a fan was off", "excluded_utc": "2026-01-01T00:00:00+00:00",
        }
        for number, pattern in ((1, None), (2, "resnet*"))
    ],
}  # fmt: skip
BOMBS = (
    b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9))
        for name in range(ord("b"), ord("j"))
    ),
    b"? {a: &x [*x]}\n: 1",
    b"&a [*a]",
    b"a: 2020-13-45",
    b"<<: [{a: 1}]\nb: !!set {x}",
    b"- !!binary x\n- !!float 9\n- !!int '9_'\n- 0o9\n- 1:90",
)  # fmt: skip
_MAX_NODES = 1_000_000


def sweep_file(data: bytes) -> object:
    spec = load_spec(as_file(data, "files/sweep.yaml"))
    stored = json.loads(json.dumps(spec.model_dump(mode="json")))
    # A record keeps the sweep like this, and a resume reads it back.
    assert SweepSpec.model_validate(stored) == spec
    return stored


def device_file(data: bytes) -> object:
    device = parse_file(as_file(data, "files/device.yaml"), DeviceFile)
    text = device_text(device)
    assert parse_file(as_file(text.encode(), "files/again.yaml"), DeviceFile) == device
    return (text, device.spec, device.found.canary_spread)


def yaml_document(data: bytes) -> object:
    value = read_yaml(as_file(data, "files/any.yaml"))
    nodes, waiting = 0, [value]
    while waiting:
        nodes += 1
        assert nodes < _MAX_NODES, "aliases expand beyond all bounds"
        one = waiting.pop()
        waiting += one if isinstance(one, list) else one.values() if isinstance(one, dict) else ()
    return value


def model_card(data: bytes) -> object:
    return load_user_card(as_file(data, "cards/mine.toml"))


def device_option(data: bytes) -> object:
    return devices_command._value("tier", data.decode("utf-8", "replace"))


def exclusions(data: bytes) -> object:
    path = as_file(data, f"results/{EXCLUSIONS_FILE}")
    found = read_exclusions(path.parent)
    assert all(one.number < found.next_number for one in found.entries)
    row = {"sweep_id": "s", "model": "resnet18", "platform_key": "p", "workload": None}
    rows = pl.LazyFrame([row], schema=dict.fromkeys(row, pl.String()))
    marked = rows.with_columns(excluded_column(found))
    return found, exclusion_notes(marked)


def sweep_record(data: bytes) -> object:
    workspace, _ = _recorded()
    (workspace.results / "sweeps").mkdir(parents=True, exist_ok=True)
    (workspace.results / "sweeps" / "s.json").write_bytes(data)
    store = ResultStore(workspace.results)
    try:
        setup = setup_of_record(workspace, store.sweep_record("s"))
    finally:
        (workspace.results / "sweeps" / "s.json").unlink()
    return setup.plan.cells


def schema_mark(data: bytes) -> object:
    return ResultStore(as_file(data, "marked/schema.json").parent).root


def progress_file(data: bytes) -> object:
    return read_progress(as_file(data, "files/progress.json"))


@cache
def _recorded() -> tuple[Workspace, dict[str, object]]:
    """A workspace and the record of a sweep in it."""
    folder = scratch() / "workspace"
    workspace = Workspace.init(folder)
    path = folder / "sweeps" / "one.yaml"
    path.write_text("name: one\nmodels: [resnet18]\nruntimes: [onnx]\n")
    setup = plan_sweep(workspace, load_spec(path), None, fleet=this_host())
    record = new_record(
        "s",
        setup,
        WrittenSpec(spec=setup.spec, origin=str(path), text=path.read_text()),
        Provenance(),
    )
    return workspace, record.as_json()


def _record_inputs() -> st.SearchStrategy[bytes]:
    _, record = _recorded()
    keys = (*record, *DeviceFacts.__dataclass_fields__, "here", "hosts", "origin", "sha256")
    samples = (as_json(record), as_json({"origin": "imported"}))
    return st.one_of(documents(record, keys, as_json), mutated(samples))


def _yaml_inputs(
    samples: tuple[bytes, ...], base: object, keys: object
) -> st.SearchStrategy[bytes]:
    words = (*(f"{key}: ".encode() for key in keys), b"&a ", b"*a", b"<<: ", b"!!", b"? ")
    return st.one_of(
        documents(base, tuple(keys), as_yaml), mutated((*samples, as_yaml(base), *BOMBS), words)
    )


def _toml_inputs(base: object, keys: object) -> st.SearchStrategy[bytes]:
    words = (*(f"{key} = ".encode() for key in keys), b"[[", b"]]", b"'''", b"1979-05-27T")
    return st.one_of(
        documents(base, tuple(keys), as_toml),
        mutated((as_toml(base), *map(str.encode, RUNS)), words),
    )


TARGETS = (
    Target(sweep_file, _yaml_inputs(SWEEPS, SWEEP, SweepSpec.model_fields)),
    Target(device_file, _yaml_inputs((), DEVICE, DeviceFile.model_fields)),
    Target(yaml_document, st.one_of(mutated((*SWEEPS, *BOMBS)), arbitrary())),
    # Nothing of ours but `ray up` reads it; it is held to what every YAML file is.
    Target(
        yaml_document,
        mutated(((ROOT / "cluster.yaml").read_bytes(),)),
        share=0.5,
        name="cluster_file",
    ),
    Target(model_card, _toml_inputs(CARD, CardKeys.__dataclass_fields__)),
    Target(read_mapping, _toml_inputs(MAPPING, MAPPING), name="csv_mapping"),
    Target(
        device_option,
        st.one_of(
            mutated((b"1", b"edge", b"true", b"0.5")), one_of(HOSTILE).map(str.encode), arbitrary()
        ),
    ),
    Target(
        exclusions,
        st.one_of(
            documents(EXCLUSIONS, tuple(EXCLUSIONS["exclusions"][0]), as_json),
            mutated((as_json(EXCLUSIONS),)),
        ),
    ),
    # A damaged specification inside a record is refused by Pydantic's own error.
    Target(
        sweep_record,
        st.deferred(_record_inputs),
        may_raise=(FleetError, ValidationError),
        share=0.5,
    ),
    Target(schema_mark, documents({"schema_version": 1}, ("schema_version",), as_json), share=0.5),
    Target(
        progress_file,
        documents({"devices": {"d": {"state": "idle"}}}, ("devices",), as_json),
        share=0.5,
    ),
)
