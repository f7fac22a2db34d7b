import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.android.execution.program_run import decode_log, encode_log
from fleetrank.device_agents.android.programs.phone_program import ProgramCall, ProgramOutput
from fleetrank.device_agents.errors import BadOutputError

ANY_TEXT = st.text()
OUTPUTS = st.builds(
    ProgramOutput,
    run=st.builds(
        ProgramCall,
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
    assert decode_log(encode_log(output)) == output


@given(OUTPUTS, st.data())
def test_a_log_that_was_cut_off_is_never_taken_for_a_whole_one(output, data) -> None:
    log = encode_log(output)
    with pytest.raises(BadOutputError):
        decode_log(log[: data.draw(st.integers(0, len(log) - 1))])


def test_people_can_read_it() -> None:
    run = ProgramCall(argv=("/t/a b", "--graph=$(x)"), result_file="/r")
    output = ProgramOutput(run=run, exit_code=0, stdout="a\r\nb", stderr="", result=b"\0\xff")
    assert "== argv, 23 characters\n'/t/a b' '--graph=$(x)'\n" in encode_log(output)
