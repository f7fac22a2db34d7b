import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agents.android.shell_stream import split_marked
from device_agents.errors import TransientError


@given(
    text=st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])),
    code=st.integers(0, 255),
)
def test_output_and_exit_code_come_apart(text: str, code: int) -> None:
    printed = f"{text}\nMARK {code}\n".replace("\n", "\r\n")
    found = split_marked(printed, "MARK")
    assert (found.exit_code, found.stdout) == (code, text)


@given(st.text())
def test_output_without_the_mark_is_a_lost_phone(text: str) -> None:
    with pytest.raises(TransientError):
        split_marked(text, "0f0f0f0f")


def test_a_mark_in_the_middle_is_output() -> None:
    found = split_marked("a\nMARK 0\nb\nMARK 7\n", "MARK")
    assert (found.exit_code, found.stdout) == (7, "a\nMARK 0\nb")
