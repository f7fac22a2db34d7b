from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.virtual_phone.virtual_phone import (
    is_signed,
    parse_public_key,
    read_public_key,
)

DATA = Path(__file__).parents[1] / "data"
TOKEN = bytes(range(20))
SIGNATURE = (DATA / "signature.bin").read_bytes()
KEY = read_public_key(DATA / "adbkey.pub")


def test_the_signature_of_a_real_client_is_accepted() -> None:
    assert KEY is not None
    assert is_signed(TOKEN, SIGNATURE, KEY)


@given(token=st.binary(min_size=20, max_size=20).filter(lambda token: token != TOKEN))
def test_it_opens_no_other_token(token: bytes) -> None:
    assert KEY is not None
    assert not is_signed(token, SIGNATURE, KEY)


@given(place=st.integers(0, 255), change=st.integers(1, 255))
def test_a_changed_signature_is_refused(place: int, change: int) -> None:
    assert KEY is not None
    changed = bytearray(SIGNATURE)
    changed[place] ^= change
    assert not is_signed(TOKEN, bytes(changed), KEY)


@given(signature=st.binary(max_size=300))
def test_a_signature_of_any_length_is_refused_without_an_error(signature: bytes) -> None:
    assert KEY is not None
    assert not is_signed(TOKEN, signature, KEY)


@given(text=st.binary(max_size=800))
def test_what_is_no_key_is_none(text: bytes) -> None:
    assert parse_public_key(text) is None


def test_a_missing_file_is_no_key(tmp_path: Path) -> None:
    assert read_public_key(tmp_path / "adbkey.pub") is None
