import hashlib
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.foundation.vocabulary import Mode, Runtime
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec, load_spec

REPOSITORY = Path(__file__).parents[3]
FULL = """
name: full
description: every key
models: [resnet18, mobile_cnn]
runtimes: [onnx, torch]
devices: local-cpu
threads: 2
batch: [1, 4]
precision: [fp32, fp16]
modes: {torch: [eager, compile]}
backends: {onnx: cpu}
runtime_options: {onnx: {spinning: false, level: 3, name: x, share: 0.5}}
affinity: [2, 3]
weights: {kind: seeded, seed: 7}
weights_of: {resnet18: pretrained}
repeats: 3
seed: 11
measure: {max_time_s: 3, min_runs: 30, half_width: 0.02}
limits: {timeout_s: 60, memory_limit_bytes: 2GiB, max_attempts: 2}
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_specification_gets_the_protocol_as_default(tmp_path) -> None:
    spec = load_spec(_file(tmp_path, "name: a\nmodels: all"))
    assert spec.models == ("all",)
    assert spec.runtimes == (Runtime.ONNX, Runtime.TORCH, Runtime.TFLITE)
    assert spec.devices == ("local-cpu",)
    assert spec.repeats == 5
    assert spec.affinity == "first_cores"
    assert spec.measure == MeasurePolicy()


def test_every_key_is_understood(tmp_path) -> None:
    spec = load_spec(_file(tmp_path, FULL))
    assert spec.devices == ("local-cpu",)
    assert spec.threads == (2,)
    assert spec.modes == {Runtime.TORCH: (Mode.EAGER, Mode.COMPILE)}
    options = spec.runtime_options[Runtime.ONNX]
    assert options == {"spinning": False, "level": 3, "name": "x", "share": 0.5}
    assert [type(value) for value in options.values()] == [bool, int, str, float]
    assert spec.affinity == (2, 3)
    assert (spec.weights.kind, spec.weights.seed) == ("seeded", 7)
    assert spec.weights_of["resnet18"].kind == "pretrained"
    assert spec.limits.memory_limit_bytes == 2 * 1024**3
    assert spec.measure == MeasurePolicy(max_time_s=3, min_runs=30, half_width=0.02)


def test_a_specification_survives_the_record_of_its_sweep(tmp_path) -> None:
    (tmp_path / "w.pt").write_bytes(b"weights")
    checkpoint = FULL.replace("pretrained}", "{kind: checkpoint, path: w.pt}}")
    calibrated = "name: a\nmodels: all\nprecision: int8\ncalibrate: {data: w.pt, mean: 0.5}"
    for text in (FULL, checkpoint, calibrated, "name: a\nmodels: all"):
        spec = load_spec(_file(tmp_path, text))
        record = json.loads(json.dumps(spec.model_dump(mode="json")))
        assert SweepSpec.model_validate(record) == spec


@pytest.mark.slow
def test_the_schema_accepts_what_the_loader_accepts(tmp_path) -> None:
    schema = SweepSpec.model_json_schema()
    for text in (FULL, "name: a\nmodels: all"):
        jsonschema.validate(yaml.safe_load(text), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "a", "models": "all", "modles": 1}, schema)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "message", "remedy"),
    [
        ("reppeats: 3", "unknown key 'reppeats'", "did you mean 'repeats'?"),
        ("measure: {max_time: 3}", "unknown key 'measure.max_time'", "max_time_s"),
        ("limits: {timeout: 3}", "unknown key 'limits.timeout'", "timeout_s"),
        ("runtimes: [torch, ONNX]", "the 2nd entry of 'runtimes'", "did you mean 'onnx'?"),
        ("runtimes: qqq", "key 'runtimes'", "give one of onnx, torch, tflite, executorch"),
        ("precision: fp8", "precision", "correct"),
        ("modes: {torch: [fast]}", "1st entry of 'modes.torch'", "one of eager"),
        ("modes: {pytorch: [eager]}", "'modes.pytorch'", "did you mean 'torch'?"),
        ("threads: 0", "key 'threads'", "correct 'threads': give a whole number from 1 to 4096"),
        ("threads: 99999999999999999999", "threads", "correct"),
        ("threads: [true]", "threads", "correct"),
        ("threads: '2'", "threads", "correct"),
        ("threads: []", "threads", "correct"),
        ("threads: null", "threads", "whole number from 1 to 4096, or a list of these"),
        ("repeats: 0", "repeats", "correct 'repeats': give a whole number from 1 to 1000"),
        ("repeats: 2.5", "repeats", "correct"),
        ("seed: -1", "seed", "correct"),
        ("name: A b", "name", "give text that matches ^[a-z0-9]"),
        ("name: ../x", "name", "correct"),
        ("affinity: last", "key 'affinity': give first_cores", "correct"),
        ("affinity: []", "key 'affinity'", "correct"),
        ("affinity: [true]", "key 'affinity'", "correct"),
        ("affinity: [-1]", "key 'affinity': give first_cores", "correct"),
        ("measure: {max_time_s: .inf}", "measure.max_time_s", "correct"),
        ("measure: {max_time_s: .nan}", "measure.max_time_s", "correct"),
        ("measure: {half_width: 0}", "measure.half_width", "give a number above 0 and below 1"),
        ("measure: {min_runs: 20, max_samples: 10}", "min_runs is above max_samples", "correct"),
        ("limits: {memory_limit_bytes: many}", "such as '2GiB'", "correct"),
        ("limits: {memory_limit_bytes: 3}", "greater", "a whole number from 1048576"),
        ("limits: {memory_limit_bytes: 10}", "limits.memory_limit_bytes", "correct"),
        ("runtime_options: {onnx: {a: [1]}}", "'runtime_options.onnx.a': give a number", "correct"),
        ("runtime_options: {onnx: {a: .nan}}", "'runtime_options.onnx.a'", "correct"),
        ("measure: 3", "'measure': needs `key: value` lines", "correct"),
        ("calibrate: {data: x.npy}", "calibrate is for networks in int8", "correct"),
        ("precision: int8\ncalibrate: {data: no.npy}", "calibrate.data", "folder of images"),
        ("weights: best", "weights.kind", "give one of seeded, pretrained, checkpoint"),
        ("weights: checkpoint", "'path' is required", "correct"),
        ("weights: {path: x.pt}", "'path' is required", "correct"),
        ("weights: {kind: checkpoint, path: none.pt}", "none.pt cannot be read", "state dict"),
    ],
)
def test_a_wrong_specification_names_file_key_and_remedy(tmp_path, line, message, remedy) -> None:
    content = {"name": "a", "models": "all"} | yaml.safe_load(line)
    path = _file(tmp_path, yaml.safe_dump(content))
    with pytest.raises(UsageError) as caught:
        load_spec(path)
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert remedy in caught.value.remedy


def test_a_misspelt_key_that_is_needed_is_guessed_first(tmp_path) -> None:
    with pytest.raises(UsageError) as caught:
        load_spec(_file(tmp_path, "name: a\nmodles: all"))
    assert "did you mean 'models'?" in caught.value.remedy


def test_a_folder_of_weights_is_known_by_the_files_that_are_read(tmp_path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).write_text(name)
    path = _file(tmp_path, "name: a\nmodels: all\nweights: {kind: checkpoint, path: model}")
    first = load_spec(path).weights
    assert first.path == folder
    (folder / "README.md").write_text("other words")
    assert load_spec(path).weights.sha256 == first.sha256
    (folder / "model.safetensors").write_text("other weights")
    assert load_spec(path).weights.sha256 != first.sha256


def test_a_checkpoint_is_found_beside_the_file_and_known_by_its_content(tmp_path) -> None:
    (tmp_path / "w.pt").write_bytes(b"weights")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    text = "name: a\nmodels: all\nweights_of: {x: {kind: checkpoint, path: w.pt%s}}"
    for pinned in ("", f", sha256: {sha256}"):
        weights = load_spec(_file(tmp_path, text % pinned)).weights_of["x"]
        assert (weights.path, weights.sha256) == (tmp_path / "w.pt", sha256)
    with pytest.raises(UsageError, match="has the sha256"):
        load_spec(_file(tmp_path, text % f", sha256: {'a' * 64}"))


@pytest.mark.parametrize("name", ["quick", "paper13"])
def test_the_sweeps_of_the_repository_are_valid(name) -> None:
    assert load_spec(REPOSITORY / "sweeps" / f"{name}.yaml").name == name


def test_calibration_data_are_found_beside_the_file_and_known_by_their_content(tmp_path) -> None:
    np.save(tmp_path / "data.npy", np.ones((4, 3, 8, 8), np.float32))
    text = "name: a\nmodels: all\nprecision: int8\ncalibrate: {data: data.npy, n: 3%s}"
    found = load_spec(_file(tmp_path, text % "")).calibrate
    assert (found.data, found.n) == (tmp_path / "data.npy", 3)
    same = load_spec(_file(tmp_path, text % f", sha256: {found.sha256}")).calibrate
    assert same == found
    np.save(tmp_path / "data.npy", np.zeros((4, 3, 8, 8), np.float32))
    with pytest.raises(UsageError, match=r"calibrate\.sha256"):
        load_spec(_file(tmp_path, text % f", sha256: {found.sha256}"))
