"""The forms of a `.pt2`'s program: what PyTorch would make names, calls or source code of."""

import json

import pytest

from fleetrank.device_agents.runtimes.pt2_forms import (
    UnfitError,
    dotted_path,
    expression,
    identifier,
    integer,
    number,
    operator,
    plain_text,
    tree_spec,
)
from fleetrank.device_agents.runtimes.pt2_program import (
    STRING_ARGUMENTS,
    checked_program,
    checked_table,
)
from fleetrank.foundation.codec import Json

LEAF: Json = {"type": None, "context": None, "children_spec": []}


def program_with(nodes: Json) -> bytes:
    return json.dumps({"graph_module": {"graph": {"nodes": nodes}}}).encode()


def tree(kind: str, context: Json) -> str:
    return json.dumps([1, {"type": kind, "context": json.dumps(context), "children_spec": [LEAF]}])


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system", "torch.ops.load_library", "torch.hub.load", "math.__loader__.x",
        "torch.ops.aten.from_file.default", "torch.ops.aten.save.default",
        "torch.ops.aten.__class__.mro", "torch.ops.aten.relu.__globals__",
        "_operator.methodcaller", "#my:op", "torch.ops.mine.op.default",
        "torch.sym_not.__globals__", "torch.ops.aten.relu.default\n",
    ],
)  # fmt: skip
def test_what_is_no_operator_is_refused_as_a_target_and_as_an_argument(target: str) -> None:
    argument: Json = {"name": "", "arg": {"as_operator": target}}
    with pytest.raises(UnfitError, match="target"):
        checked_program(program_with([{"target": target}]))
    with pytest.raises(UnfitError, match="as_operator"):
        checked_program(
            program_with([{"target": "torch.ops.higher_order.cond", "inputs": [argument]}])
        )


LET_THROUGH = {
    operator: ("torch.ops.aten.relu.default",),
    expression: (
        "s0", "Symbol('s77', positive=True, integer=True)", "Max(1, s0) + 2 * s77 // 4",
        "8 * FloorDiv(u0, 2)", "Mul(Integer(2), Pow(Symbol('zuf3'), Integer(-1)))",
        "Float('0.5', precision=53)", "-int_oo <= s0",
    ),
    dotted_path: ("", "0.weight", "layers.blocks-0.bias", "layer@1", "a:b"),
    number: ("-Infinity",),
}  # fmt: skip
REFUSED = {
    expression: (
        "exec('1')", "s0.__class__", "s0.is_real", "x", "Symbol('x')", "[1][0]", "lambda: 1",
        "Symbol(s0)", "Symbol('s0', commutative=print)", "Integer('1')", "Float('s0')",
        "Max(*s0)", "Max(**s0)", "s0 if s1 else s2", "(s0 := 1)", "'s0'", "f'{s0}'", "Max",
        "Max(1)(2)", "s0; s1", "s0\nimport os", "", "\u017f0", 3, None, "s1234567", "Sum(s0)",
    ),
    # A name that source code would read otherwise.
    identifier: (
        "", "a b", "a=1", "a:print", "a.b", "x, y", "class", "None", "__class__", "self", "torch",
        "1a", "a#", "a'", "a\n", "na\u00efve", 3, None,
    ),
    # What leaves its quotes.
    dotted_path: ("a'", 'a"', "a\\", "a..b", ".a", "a.__class__", "a b", "a\n", 1),
    plain_text: ('a"', "a'", "a\\", "a\nb", "\ud800", "{}", "`", "$"),
    # A tree of other than builtin containers, or whose keys are no names.
    tree_spec(identifier): (
        *(tree(kind, ["a"]) for kind in
          ("collections.defaultdict", "collections.namedtuple", "os.x")),
        *(tree("builtins.dict", [key]) for key in
          ("a':print(),'b", "a=print()", "a b", "class", {"__enum__": 1})),
    ),
    integer: (True, 2**64 + 1, 1.5, "1", None, []),
    number: (float("nan"), float("inf"), "1e5", "infinity"),
}  # fmt: skip
"""What each reader accepts and refuses."""


@pytest.mark.parametrize(
    ("reader", "value"),
    [(reader, value) for reader in LET_THROUGH for value in LET_THROUGH[reader]],
)
def test_what_is_harmless_is_let_through(reader, value) -> None:
    assert reader(value, "place") == value


@pytest.mark.parametrize(
    ("reader", "value"), [(reader, value) for reader in REFUSED for value in REFUSED[reader]]
)
def test_all_else_is_refused(reader, value) -> None:
    with pytest.raises(UnfitError):
        reader(value, "place")


@pytest.mark.parametrize("name", ["a=open('x', 'w')", "class", "__init__", "a b"])
def test_a_keyword_of_a_call_is_an_identifier(name: str) -> None:
    argument: Json = {"name": name, "arg": {"as_int": 1}}
    for target in ("torch.ops.higher_order.cond", "math.floor", "torch.sym_max"):
        with pytest.raises(UnfitError, match="keyword"):
            checked_program(program_with([{"target": target, "inputs": [argument]}]))


def test_a_string_stands_only_where_an_operator_takes_one() -> None:
    def node(name: str) -> bytes:
        argument: Json = {"name": name, "arg": {"as_string": "same"}}
        return program_with([{"target": "torch.ops.aten.x.default", "inputs": [argument]}])

    checked_program(node("padding"))
    with pytest.raises(UnfitError, match="filename"):
        checked_program(node("filename"))


def test_no_operator_that_opens_files_takes_its_name_by_a_known_argument() -> None:
    """A new PyTorch may bring more; the operators whose strings are not known are listed here."""
    torch = pytest.importorskip("torch")
    unknown = {
        (schema.name, argument.name)
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith(("aten::", "prims::", "quantized::"))
        # Others are TorchScript's, which take no tensor of an exported program.
        and torch._C._dispatch_has_kernel(f"{schema.name}.{schema.overload_name}".rstrip("."))
        for argument in schema.arguments
        if str(argument.type) in {"str", "Optional[str]", "List[str]"}
        and argument.name not in STRING_ARGUMENTS | {"assert_msg"}
    }
    assert unknown == {
        ("aten::from_file", "filename"),  # refused as a target
        ("aten::_print", "s"),
        ("aten::_test_string_default", "a"),
        ("aten::_test_string_default", "b"),
        ("aten::_test_ambiguous_defaults", "b"),
    }


def test_the_message_of_an_assertion_is_not_the_file_s() -> None:
    argument: Json = {"name": "assert_msg", "arg": {"as_string": '"); system("x"); ("'}}
    node: Json = {"target": "torch.ops.aten._assert_scalar.default", "inputs": [argument]}
    assert b"system" not in checked_program(program_with([node]))


def test_a_tree_is_written_from_what_was_checked() -> None:
    text = '[1, {"context": "[\\"x\\"]", "type": "builtins.dict", "more": 1, "children_spec": []}]'
    assert tree_spec(identifier)(text, "in_spec") == json.dumps(
        [1, {"type": "builtins.dict", "context": '["x"]', "children_spec": []}]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"guards_code": [], "guards_code": []}', "a key is given twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "decode"),
        (b"", "Expecting value"),
        (b'{"opset_version": {"aten": ' + b"9" * 5000 + b"}}", "digits"),
    ],
    ids=["a key twice", "nesting", "no text", "nothing", "digits"],
)
def test_json_that_reads_in_two_ways_or_has_no_end_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked_program(text)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnfitError, match="'startup_code'"):
        checked_program(b'{"startup_code": "1"}')


def test_what_only_people_read_ends_no_comment_and_is_no_json() -> None:
    notes: Json = {
        "stack_trace": 'File "x"\n"""\nprint(1) \\', "custom": "{}", "source_fn_stack": "a,torch.os"
    }  # fmt: skip
    node: Json = {"target": "torch.ops.aten.relu.default", "metadata": notes}
    text = json.dumps(
        {"graph_module": {"graph": {"nodes": [node]}, "metadata": {"custom": "{}"}},
         "guards_code": ["print(1)"]}
    )  # fmt: skip
    checked = json.loads(checked_program(text.encode()))
    assert checked["guards_code"] == []
    assert checked["graph_module"]["metadata"] == {}
    kept = checked["graph_module"]["graph"]["nodes"][0]["metadata"]
    assert kept == {"stack_trace": "File _x______print(1) _"}


@pytest.mark.parametrize(
    "change", [{"use_pickle": True}, {"use_pickle": None}, {"path_name": "../weight_0"},
               {"path_name": "custom_obj_0"}, {"code": 1}]
)  # fmt: skip
def test_a_table_with_a_pickle_or_a_foreign_path_is_refused(change: dict[str, Json]) -> None:
    payload: dict[str, Json] = {"path_name": "weight_0", "is_param": True, "use_pickle": False}
    checked_table(json.dumps({"config": {"0.weight": payload}}).encode())
    with pytest.raises(UnfitError):
        checked_table(json.dumps({"config": {"0.weight": {**payload, **change}}}).encode())
