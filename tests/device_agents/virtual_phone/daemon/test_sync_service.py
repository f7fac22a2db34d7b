import stat

import pytest

from fleetrank.device_agents.virtual_phone.shell_service import mode_of


@pytest.mark.parametrize("text", ["33188", "0", "41471"])
def test_a_mode_is_read_as_it_was_sent(text: str) -> None:
    assert mode_of(text) == int(text)


@pytest.mark.parametrize("text", ["", "-1", "٣", "1" * 30, "1" * 5000, "99999999999"])
def test_a_mode_that_no_file_has_is_that_of_a_plain_file(text: str) -> None:
    assert mode_of(text) == 0o644
    assert not stat.S_ISLNK(mode_of(text))
