import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agents.android.raw_log import decode_log, encode_log, read_raw_log, write_raw_log
from device_agents.android.runners.runner import ToolOutput, ToolRun
from device_agents.errors import BadOutputError

ANY_TEXT = st.text(st.characters())
OUTPUTS = st.builds(
    ToolOutput,
    run=st.builds(
        ToolRun,
        argv=st.lists(ANY_TEXT).map(tuple),
        result_file=st.none() | ANY_TEXT,
        log_tag=st.none() | ANY_TEXT,
        warmup_runs=st.integers(0, 99),
    ),
    exit_code=st.integers(-1, 255),
    stdout=ANY_TEXT | st.just("== stderr, 3 bytes\nabc\n"),
    stderr=ANY_TEXT,
    result=st.none() | st.binary(),
    logcat=st.none() | ANY_TEXT,
)


@given(OUTPUTS)
def test_a_log_gives_back_what_was_kept(output) -> None:
    assert decode_log(encode_log(output), output.result) == output


@given(OUTPUTS, st.data())
def test_a_log_that_was_cut_off_is_never_taken_for_a_whole_one(output, data) -> None:
    content = encode_log(output)
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    try:
        decoded = decode_log(cut, output.result)
    except BadOutputError:
        return
    # Cut exactly before the last section, which not every program has.
    assert decoded.logcat is None


@given(st.binary(max_size=200))
def test_any_content_is_an_output_or_a_typed_error(content) -> None:
    with pytest.raises(BadOutputError):
        decode_log(b"fleetrank raw log 1\n" + content, None)


def test_it_is_kept_with_the_result_file_beside_it(tmp_path) -> None:
    run = ToolRun(argv=("/t/a b", "--graph=$(x)"), result_file="/r")
    output = ToolOutput(run=run, exit_code=0, stdout="a\r\nb", stderr="", result=b"\0\xff")
    path = tmp_path / "raw" / "sweep" / "1.log"
    write_raw_log(path, output)
    assert (tmp_path / "raw" / "sweep" / "1.result").read_bytes() == b"\0\xff"
    assert read_raw_log(path) == output
    assert b"'/t/a b' '--graph=$(x)'\n" in path.read_bytes()


def test_a_log_that_is_gone_is_a_typed_error(tmp_path) -> None:
    with pytest.raises(BadOutputError, match="cannot be read"):
        read_raw_log(tmp_path / "none.log")
