"""The login of a client at a phone, without adb and without a socket."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetrank.device_agents.virtual_phone import farm
from fleetrank.device_agents.virtual_phone.shell_service import (
    HEADER_BYTES,
    VERSION_WITH_CHECKSUM,
    AuthKind,
    Command,
    Message,
    decode_header,
    encode,
)
from fleetrank.device_agents.virtual_phone.virtual_phone import read_public_key

DATA = Path(__file__).parents[1] / "data"
TOKEN = bytes(range(20))
SIGNATURE = (DATA / "signature.bin").read_bytes()
"""Of `TOKEN`, by the key of the same folder."""
VERSION = VERSION_WITH_CHECKSUM


class Phone(SimpleNamespace):
    serial = "V"
    profile = SimpleNamespace(protocol_version=VERSION, max_payload_bytes=4096)

    def has_fault(self, _fault: object) -> bool:
        return False

    def read_key(self) -> object:
        return read_public_key(DATA / "adbkey.pub")

    def banner(self) -> bytes:
        return b"device::"

    async def wait_while_hung(self) -> None: ...


class Writer(SimpleNamespace):
    """Keeps what the phone sends."""

    transport = SimpleNamespace(abort=lambda: None)

    def is_closing(self) -> bool:
        return False

    def write(self, content: bytes) -> None:
        self.sent.append(content)

    async def drain(self) -> None: ...

    async def wait_closed(self) -> None: ...


def answers(monkeypatch: pytest.MonkeyPatch, *signatures: bytes) -> list[Command]:
    """What a phone answers to a greeting and to these signatures; its first token is `TOKEN`."""
    tokens = iter((TOKEN, *(bytes([number]) * 20 for number in range(1, 9))))
    monkeypatch.setattr(farm.secrets, "token_bytes", lambda _size: next(tokens))
    signed = [(Command.AUTH, AuthKind.SIGNATURE, one) for one in signatures]
    writer = Writer(sent=[])

    async def serve() -> None:
        reader = asyncio.StreamReader()
        for command, first, payload in [(Command.CNXN, VERSION, b"host::"), *signed]:
            message = Message(command=command, first=first, second=4096, payload=payload)
            reader.feed_data(encode(message, version=VERSION))
        reader.feed_eof()
        await farm.Connection(Phone(), reader, writer).serve()

    asyncio.run(serve())
    headers = (decode_header(one[:HEADER_BYTES]) for one in writer.sent)
    return [Command(header.command) for header in headers]


def test_the_signature_of_its_token_opens_a_phone(monkeypatch) -> None:
    assert answers(monkeypatch, SIGNATURE) == [Command.AUTH, Command.CNXN]


def test_a_token_opens_a_phone_once(monkeypatch) -> None:
    assert answers(monkeypatch, SIGNATURE, SIGNATURE) == [Command.AUTH, Command.CNXN]


def test_after_a_wrong_signature_the_token_is_another(monkeypatch) -> None:
    assert answers(monkeypatch, bytes(256), SIGNATURE) == [Command.AUTH] * 3
