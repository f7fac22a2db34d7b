"""Exported PyTorch programs that would run code when they are loaded, and damaged archives."""

import io
import json
import pickle  # noqa: TID251 - makes the hostile files; reads nothing
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

Rewrite = Callable[[str, bytes], bytes | None]
Json = dict[str, object]

_END = struct.Struct("<4s4H2LH")
_CENTRAL = struct.Struct("<4s6H3L5H2L")


class Hostile:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.marker,))


def rewrite(
    source: Path, target: Path, change: Rewrite, extra: dict[str, bytes] | None = None
) -> Path:
    """Copies an archive member by member; `change` returns what to write, or None to leave out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
        for name, data in (extra or {}).items():
            new.writestr(f"{old.namelist()[0].split('/')[0]}/{name}", data)
    return target


def with_program(source: Path, target: Path, change: Callable[[str], str]) -> Path:
    """Copies an archive with another text for its program."""

    def apply(name: str, data: bytes) -> bytes:
        return change(data.decode()).encode() if name.endswith("models/model.json") else data

    return rewrite(source, target, apply)


def hostile_weights(marker: Path, source: Path, target: Path) -> Path:
    """The table of weights says that one is pickled, and it is."""

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        return pickle.dumps(Hostile(marker)) if name.endswith("/weight_0") else data

    return rewrite(source, target, change)


def hostile_inputs(marker: Path, source: Path, target: Path) -> Path:
    """The sample inputs are a file by torch.save with a pickle that calls something."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as inner:
        inner.writestr("archive/data.pkl", pickle.dumps(Hostile(marker), protocol=2))
        inner.writestr("archive/version", "3\n")
        inner.writestr("archive/byteorder", "little")
    return rewrite(source, target, lambda n, d: buffer.getvalue() if n.endswith(".pt") else d)


def hostile_size(marker: Path, source: Path, target: Path) -> Path:
    """A size that is an expression with a call in it, which sympy evaluates."""
    call = f"Integer(len([open({str(marker)!r}, 'w')]))"
    expression = {"as_expr": {"expr_str": call, "hint": None}}
    old = '"sizes": [{"as_int": 1}'
    return with_program(
        source, target, lambda text: text.replace(old, '"sizes": [' + json.dumps(expression))
    )


def hostile_keyword(marker: Path, source: Path, target: Path) -> Path:
    """a keyword of the network that is not a name: fx writes it into the module's source."""
    key = f"a':open({json.dumps(str(marker))}, \"w\"),'b"
    leaf: Json = {"type": None, "context": None, "children_spec": []}
    spec: list[Json] = [
        {"type": "builtins.tuple", "context": "null", "children_spec": []},
        {"type": "builtins.dict", "context": json.dumps([key]), "children_spec": [leaf]},
    ]

    def change(text: str) -> str:
        program = json.loads(text)
        tree = {"type": "builtins.tuple", "context": "null", "children_spec": spec}
        call = program["graph_module"]["module_call_graph"][0]
        call["signature"]["in_spec"] = json.dumps([1, tree])
        return json.dumps(program)

    return with_program(source, target, change)


def hostile_target(marker: Path, source: Path, target: Path) -> Path:
    """A node that calls a function of the operating system, which PyTorch resolves."""
    return with_program(
        source, target, lambda text: text.replace("torch.ops.aten.relu.default", "torch.os.system")
    )


def hostile_constant(marker: Path, source: Path, target: Path) -> Path:
    """A constant that is an object of a Python class."""
    extra = {"data/constants/opaque_obj_0": pickle.dumps(Hostile(marker))}
    return rewrite(source, target, lambda _name, data: data, extra)


def hostile_library(marker: Path, source: Path, target: Path) -> Path:
    """A compiled library, which PyTorch loads."""
    extra = {"data/aotinductor/model/model.so": b"\x7fELF"}
    return rewrite(source, target, lambda _name, data: data, extra)


def hostile_tree(marker: Path, source: Path, target: Path) -> Path:
    """A tree specification that names a module, which PyTorch imports."""
    context = {
        "default_factory_module": "antigravity",
        "default_factory_name": "fly",
        "dict_context": [],
    }
    node = {
        "type": "collections.defaultdict",
        "context": json.dumps(context),
        "children_spec": [],
    }

    def change(text: str) -> str:
        program = json.loads(text)
        call = program["graph_module"]["module_call_graph"][0]["signature"]
        return json.dumps(program).replace(
            json.dumps(call["out_spec"]), json.dumps(json.dumps([1, node]))
        )

    return with_program(source, target, change)


def with_graph_named(name: str) -> Callable[[Path, Path, Path], Path]:
    """A second graph with a hostile size, under a name that PyTorch loads all the same."""

    def make(marker: Path, source: Path, target: Path) -> Path:
        graph = {"expr_str": f"open({str(marker)!r}, 'w')"}
        extra = {f"models/{name}": json.dumps(graph).encode()}
        return rewrite(source, target, lambda _name, data: data, extra)

    return make


def two_directories(marker: Path, source: Path, target: Path) -> Path:
    """One archive for two readers: Python's finds the honest program, PyTorch's the hostile one.

    Python's zipfile takes the directory before the end record, PyTorch's reader the one at the
    offset that the end record states.
    """
    folder = target.parent
    # Longer than the honest one, so that no offset below becomes negative.
    evil = with_program(
        hostile_size(marker, source, folder / "size.pt2"),
        folder / "evil.pt2",
        lambda text: text + " " * source.stat().st_size * 2,
    )
    honest = rewrite(source, folder / "honest.pt2", lambda _name, data: data)
    members, directory = _split(evil.read_bytes())
    more, other = _split(honest.read_bytes())
    assert len(other) == len(directory)
    # zipfile adds the distance of the two directories to every offset that it reads.
    shift = len(members) - (len(directory) + len(more) + len(members))
    moved = _moved(other, len(members) + len(directory) + shift)
    count = directory.count(b"PK\x01\x02")
    end = _END.pack(b"PK\x05\x06", 0, 0, count, count, len(other), len(members), 0)
    target.write_bytes(members + directory + more + moved + end)
    return target


def _split(data: bytes) -> tuple[bytes, bytes]:
    """The members and the directory of an archive that zipfile wrote."""
    *_rest, size, offset, _comment = _END.unpack(data[-_END.size :])
    return data[:offset], data[offset : offset + size]


def _moved(directory: bytes, by: int) -> bytes:
    """A directory whose members lie elsewhere."""
    moved, place = bytearray(directory), 0
    while place < len(directory):
        fields = list(_CENTRAL.unpack_from(directory, place))
        fields[-1] += by
        _CENTRAL.pack_into(moved, place, *fields)
        place += _CENTRAL.size + sum(fields[10:13])
    return bytes(moved)


Mutation = Callable[[random.Random, bytes], bytes]

_SIGNS = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08")


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three changes of an archive."""
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(_MUTATIONS)(rng, data)
    return data


def _flip(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _flip_header(rng: random.Random, data: bytes) -> bytes:
    """A bit of the 60 bytes that begin with a signature."""
    place = min(_header(rng, data) + rng.randrange(60), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _other_number(rng: random.Random, data: bytes) -> bytes:
    """A size, offset or count of a header becomes one that may lie elsewhere in the file."""
    size = rng.choice((2, 4, 8))
    place = min(_header(rng, data) + 4 + rng.randrange(50), len(data) - size)
    values = (0, 1, 0xFFFF, 0xFFFFFFFF, len(data), _header(rng, data), rng.randrange(len(data)))
    number = rng.choice(values) & (1 << 8 * size) - 1
    new = number.to_bytes(size, "little")
    return data[:place] + new + data[place + size :]


def _double_member(rng: random.Random, data: bytes) -> bytes:
    """A member, or its place in the directory, stands twice."""
    start = _header(rng, data)
    following = data.find(b"PK", start + 4)
    piece = data[start : following if following > 0 else len(data)]
    place = _header(rng, data)
    return data[:place] + piece + data[place:]


def _without_piece(rng: random.Random, data: bytes) -> bytes:
    start = _header(rng, data) if rng.random() < 0.5 else rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 80) :] or data


def _more_bytes(rng: random.Random, data: bytes) -> bytes:
    place = rng.choice((0, len(data), _header(rng, data), rng.randrange(len(data))))
    return data[:place] + rng.randbytes(rng.randint(1, 100)) + data[place:]


def _two_archives(rng: random.Random, data: bytes) -> bytes:
    """Another archive before it or after it, changed or not."""
    other = rng.choice((_flip_header, _flip, _other_number))(rng, data)
    return other + data if rng.random() < 0.5 else data + other


def _hidden_end(rng: random.Random, data: bytes) -> bytes:
    """A second end record, in a comment or after one."""
    end = data[data.rfind(b"PK\x05\x06") :]
    if len(end) < 22:
        return data + end
    with_comment = end[:20] + struct.pack("<H", len(end)) + end
    return data[: -len(end)] + rng.choice((with_comment, end + end, with_comment[:-1]))


def _other_case(rng: random.Random, data: bytes) -> bytes:
    """A name in other letters, or with a byte that readers take differently."""
    word = rng.choice((b"model", b"weight_0", b"byteorder", b"data/", b"models/"))
    new = rng.choice((word.upper(), word[:-1] + b"\0", word[:-1] + b"\\", b"../" + word[3:]))
    places = data.count(word)
    return data.replace(word, new[: len(word)], rng.randint(1, max(places, 1)))


def _header(rng: random.Random, data: bytes) -> int:
    """Where one of the signatures stands."""
    sign, place = rng.choice(_SIGNS), -1
    for _ in range(rng.randint(1, 1 + data.count(sign))):
        found = data.find(sign, place + 1)
        place = found if found >= 0 else place
    return max(place, 0)


_MUTATIONS: tuple[Mutation, ...] = (
    _flip, _flip_header, _flip_header, _other_number, _other_number, _double_member,
    _without_piece, _more_bytes, _two_archives, _hidden_end, _other_case,
)  # fmt: skip
