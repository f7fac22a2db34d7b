from fleetrank.device_agents.android.execution.raw_log import encode_log
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput


def test_people_can_read_a_stored_output() -> None:
    run = ProgramCall(argv=("/t/a b", "--graph=$(x)"), result_file="/r")
    output = ProgramOutput(run=run, exit_code=0, stdout="a\r\nb", stderr="", result=b"\0\xff")
    assert "== argv, 23 characters\n'/t/a b' '--graph=$(x)'\n" in encode_log(output)
