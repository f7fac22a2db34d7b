from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleetrank.device_agents.virtual_phone.shell_service import (
    HEADER_BYTES,
    VERSION_WITH_CHECKSUM,
    VERSION_WITHOUT_CHECKSUM,
    Command,
    Header,
    Message,
    ProtocolError,
    checksum,
    decode_header,
    decode_message,
    encode,
)

CNXN = (Path(__file__).parents[1] / "data/cnxn.bin").read_bytes()
WORD = st.integers(0, 2**32 - 1)
MESSAGES = st.builds(
    Message, command=st.sampled_from(Command), first=WORD, second=WORD, payload=st.binary()
)


def split(data: bytes) -> tuple[Header, bytes]:
    size = HEADER_BYTES
    return decode_header(data[:size]), data[size:]


@given(message=MESSAGES, version=st.sampled_from([VERSION_WITH_CHECKSUM, VERSION_WITHOUT_CHECKSUM]))
def test_what_is_encoded_is_decoded(message: Message, version: int) -> None:
    header, payload = split(encode(message, version=version))
    assert decode_message(header, payload, version=version) == message


def test_our_encoding_of_a_real_greeting_is_the_real_one() -> None:
    header, payload = split(CNXN)
    message = decode_message(header, payload, version=VERSION_WITH_CHECKSUM)
    assert (message.command, message.first) == (Command.CNXN, VERSION_WITHOUT_CHECKSUM)
    assert encode(message, version=VERSION_WITH_CHECKSUM) == CNXN


@given(message=MESSAGES, flipped=st.integers(0, 2**32 - 1))
def test_a_changed_byte_is_noticed_where_checksums_are_kept(message: Message, flipped: int) -> None:
    # The sum 0 stands for a packet without a checksum: no reader can check a payload of zeros.
    assume(checksum(message.payload) != 0)
    data = bytearray(encode(message, version=VERSION_WITH_CHECKSUM))
    place = HEADER_BYTES + flipped % (len(data) - HEADER_BYTES)
    data[place] ^= 0xFF
    header, payload = split(bytes(data))
    with pytest.raises(ProtocolError, match="checksum"):
        decode_message(header, payload, version=VERSION_WITH_CHECKSUM)
    decode_message(header, payload, version=VERSION_WITHOUT_CHECKSUM)
