import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Conditions, Failure, Measurement
from fleetrank.device_agents.contract.protocol import TurnReport, decode_request, encode_request
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask
from fleetrank.foundation.codec import CodecError, from_json, from_plain, to_json
from fleetrank.foundation.vocabulary import Runtime

NUMBERS = st.integers(-(2**62), 2**62)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, NUMBERS)

TASK = MeasureTask(
    task_id="t",
    artifact_path="/a",
    artifact_sha256="0",
    execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [MeasureTask, InferTask, Measurement, DeviceFacts, Failure])
def test_every_type_comes_back_as_it_went(cls: type) -> None:
    @given(st.builds(cls))
    def check(value: object) -> None:
        text = to_json(value)
        assert "\n" not in text
        back = from_json(cls, text)
        assert back == value
        assert to_json(back) == text  # 1 == 1.0 == True, but not in JSON

    check()


@given(st.one_of(st.builds(MeasureTask), st.builds(InferTask)))
def test_requests_come_back_as_they_went(task: MeasureTask | InferTask) -> None:
    assert decode_request(encode_request(task)) == task


LIMITS = json.loads(to_json(TASK))["limits"]


def changed(**changes: object) -> str:
    return json.dumps({**json.loads(to_json(TASK)), **changes})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (changed(colour="red"), "colour"),
        (changed(seed="0"), r"MeasureTask\.seed should be int"),
        (changed(seed=True), r"MeasureTask\.seed"),
        (changed(seed=1.0), r"MeasureTask\.seed"),
        (changed(is_trusted=1), r"MeasureTask\.is_trusted"),
        (changed(limits=LIMITS | {"timeout_s": None}), r"MeasureTask\.limits\.timeout_s"),
        (changed(macs_and_parameters=[1]), r"macs_and_parameters"),
        (changed(seed=2**63), r"MeasureTask\.seed should be a finite number within 64 bits"),
        (changed(macs_and_parameters=[10**400, 1]), r"macs_and_parameters\[0\]"),
        (changed(limits=LIMITS | {"timeout_s": 10**400}), r"MeasureTask\.limits\.timeout_s"),
        (to_json(TASK).replace("300.0", "1e999"), r"MeasureTask\.limits\.timeout_s"),
        (changed(execution={}), "runtime"),
        (changed(execution=None), "execution"),
        ("[]", "MeasureTask"),
        ('{"a": 1, "a": 2}', "twice"),
        ("NaN", "NaN"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(CodecError, match=named):
        from_json(MeasureTask, text)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(MeasureTask)])
def test_a_missing_field_is_named_even_with_a_default(name: str) -> None:
    plain = json.loads(to_json(TASK))
    del plain[name]
    with pytest.raises(CodecError, match=name):
        from_json(MeasureTask, json.dumps(plain))


def test_an_unknown_word_is_refused() -> None:
    text = to_json(TASK).replace('"fp32"', '"fp33"')
    with pytest.raises(CodecError, match=r"execution\.precision should be Precision"):
        from_json(MeasureTask, text)


def test_options_keep_their_types() -> None:
    options = (("a", True), ("b", 1), ("c", 1.0), ("d", "1"))
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", options=options)
    back = from_json(Execution, to_json(execution)).options
    assert [type(value) for _name, value in back] == [bool, int, float, str]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**63, object(), {"a": 1}, [1]])
def test_what_json_or_the_codec_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(CodecError):
        to_json(value)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400], ids=["above", "below", "huge"])
def test_a_list_of_integers_holds_none_beyond_64_bits(number: int) -> None:
    kept = (-(2**63), 2**63 - 1)
    plain = {"block": None, "samples_ns": [*kept]}
    assert from_plain(TurnReport, plain) == TurnReport(samples_ns=kept)
    with pytest.raises(CodecError, match=r"samples_ns\[2\].*finite number"):
        from_plain(TurnReport, {**plain, "samples_ns": [*kept, number]})


def test_an_integer_is_read_where_a_float_is_due() -> None:
    text = to_json(Conditions(load_1min=2.0)).replace("2.0", "2")
    assert isinstance(from_json(Conditions, text).load_1min, float)


def test_an_unknown_request_kind_is_named() -> None:
    with pytest.raises(CodecError, match="dance"):
        decode_request('{"kind": "dance", "task": {}}')


def test_a_file_name_that_is_not_utf_8_survives_a_pipe() -> None:
    name = os.fsdecode(b"/caf\xe9.onnx")
    text = to_json(dataclasses.replace(TASK, artifact_path=name))
    assert from_json(MeasureTask, text.encode().decode()).artifact_path == name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    folder: Path
    other: Path | None = None


def test_a_path_is_text_in_json() -> None:
    place = Place(folder=Path("/a"))
    assert to_json(place) == '{"folder":"/a","other":null}'
    assert from_json(Place, to_json(place)) == place
    with pytest.raises(CodecError, match=r"Place\.folder should be Path and is 3"):
        from_json(Place, '{"folder":3,"other":null}')


def test_a_number_of_another_type_is_looked_up_at_once() -> None:
    class Bytes(int):
        """As Pydantic's sizes are."""

    assert to_json(Bytes(1500 << 20)) == "1572864000"
