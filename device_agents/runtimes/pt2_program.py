"""The allowed content of the program in a `.pt2`: known keys, and a known form for every value.

PyTorch turns these texts into names, calls and source code. A value without a form is rejected, and
the text that PyTorch gets is written from the checked values.

| text in the file | what PyTorch does with it | form |
|---|---|---|
| `target`, `as_operator` | finds attributes of `torch`, `math`, `_operator`; calls | `operator` |
| `expr_str` | `sympy.sympify`, which is `eval` | `expression` |
| keys of `range_constraints` | looks them up | `range_key` |
| names of nodes, values, subgraphs | writes them into source that it executes | `identifier` |
| keywords of calls, of `in_spec`, `forward_arg_names` | the same | `identifier` |
| names of weights and submodules | the same, in quotes; attributes of modules | `dotted_path` |
| strings as arguments | quoted into that source; raw into C++ in mode compile | `plain_text` |
| `in_spec`, `out_spec` | finds types; a context may name a module to import | `tree_spec` |
| `filename` of `aten::save`, `aten::from_file` | opens the file | neither operator |
| `stack_trace`, `nn_module_stack`, `torch_fn` | comments of source | `note` |
| the rest of `metadata`, `guards_code` | attributes, JSON; `exec` | left out |
| custom objects, pickled tensors | unpickles them | no key; `use_pickle` is false |

Source: torch 2.13, _export/serde/schema.py and serialize.py, export/_unlift.py, fx/graph.py.
"""

import re

from fleetrank.device_agents.runtimes.pt2_forms import (
    UnfitError,
    boolean,
    dotted_path,
    expression,
    identifier,
    integer,
    left_out,
    listed,
    mapping,
    matching,
    note,
    number,
    one_of,
    operator,
    optional,
    plain_text,
    range_key,
    record,
    rewritten,
    tree_spec,
    union,
    version_text,
)
from fleetrank.foundation.codec import Json

_HAS_SCHEMA = re.compile(r"torch\.ops\.(?!higher_order\.)")
"""PyTorch matches arguments of these operators by schema; for others, names become keywords."""
STRING_ARGUMENTS = frozenset(
    {"activation", "algorithm", "api_name", "approximate", "driver", "equation",
     "indexing", "interpolation", "mode", "norm", "ord", "p", "pad_mode", "padding",
     "padding_side", "reduce", "rounding_mode", "side", "UPLO"}
)  # fmt: skip
"""Arguments of operators that are strings, by the operators' schemas."""
_NOTES = frozenset({"nn_module_stack", "stack_trace", "torch_fn"})
_MESSAGE = "assert_msg"
"""Free text that the network does not need."""
_DEVICES = frozenset({"cpu", "cuda", "meta"})


def checked_program(text: bytes) -> bytes:
    """The text of `models/model.json`, written from the checked values.

    Raises:
        ValueError: it is not JSON, or contains more than a graph of known operators.
    """
    return rewritten(text, _PROGRAM)


def checked_table(text: bytes) -> bytes:
    """The text of a table of weights or constants, written from the checked values.

    Raises:
        ValueError: it is not JSON, or a payload in it is pickled or outside its folder.
    """
    return rewritten(text, _PAYLOADS)


def _notes(value: Json, key: str) -> Json:
    """Notes on a node for display; PyTorch looks up names in other metadata, or parses JSON."""
    if not isinstance(value, dict):
        raise UnfitError(key, value)
    return {name: note(text, name) for name, text in value.items() if name in _NOTES}


def _graph(value: Json, key: str) -> Json:
    return _GRAPH(value, key)


def _node(value: Json, key: str) -> Json:
    """A call of an operator; PyTorch finds inputs by name, or makes them keywords."""
    target = value.get("target") if isinstance(value, dict) else None
    has_schema = _HAS_SCHEMA.match(str(target)) is not None
    inputs = listed(_input_by_schema if has_schema else _INPUT_BY_KEYWORD)
    return record({**_NODE, "inputs": inputs})(value, key)


def _input_by_schema(value: Json, key: str) -> Json:
    """A string is allowed only where an allowed operator takes one."""
    fields = value if isinstance(value, dict) else {}
    if fields.get("name") == _MESSAGE:
        return {"name": _MESSAGE, "arg": {"as_string": "an assertion of the network failed"}}
    argument = fields.get("arg")
    takes_text = isinstance(argument, dict) and bool(argument.keys() & _STRINGS)
    return record({**_INPUT, "name": _STRING_NAME if takes_text else _SCHEMA_NAME})(value, key)


def _keyword(value: Json, key: str) -> Json:
    return value if value == "" else identifier(value, f"keyword {key}")


def _no_pickle(value: Json, key: str) -> Json:
    if value is not False:
        raise UnfitError(key, value)
    return value


_DEVICE = record({"type": one_of(_DEVICES), "index": optional(integer)})
_HINT = union({"as_int": integer, "as_bool": boolean, "as_float": number})
_SYMBOLIC = record({"expr_str": expression, "hint": optional(_HINT)})
_SYM_INT = union({"as_expr": _SYMBOLIC, "as_int": integer})
_SYM_FLOAT = union({"as_expr": _SYMBOLIC, "as_float": number})
_SYM_BOOL = union({"as_expr": _SYMBOLIC, "as_bool": boolean})
_TENSOR_META = record(
    {"dtype": integer, "sizes": listed(_SYM_INT), "requires_grad": boolean, "device": _DEVICE,
     "strides": listed(_SYM_INT), "storage_offset": _SYM_INT, "layout": integer}
)  # fmt: skip
_TENSOR = record({"name": identifier})
_INT_ARGUMENT = union({"as_name": identifier, "as_int": integer})
_FLOAT_ARGUMENT = union({"as_name": identifier, "as_float": number})
_BOOL_ARGUMENT = union({"as_name": identifier, "as_bool": boolean})
_OPTIONAL_TENSOR = union({"as_tensor": _TENSOR, "as_none": boolean})
_ARGUMENT = union(
    {"as_none": boolean, "as_tensor": _TENSOR, "as_tensors": listed(_TENSOR), "as_int": integer,
     "as_ints": listed(integer), "as_float": number, "as_floats": listed(number),
     "as_string": plain_text, "as_strings": listed(plain_text), "as_sym_int": _INT_ARGUMENT,
     "as_sym_ints": listed(_INT_ARGUMENT), "as_scalar_type": integer,
     "as_memory_format": integer, "as_layout": integer, "as_device": _DEVICE,
     "as_bool": boolean, "as_bools": listed(boolean), "as_sym_bool": _BOOL_ARGUMENT,
     "as_sym_bools": listed(_BOOL_ARGUMENT),
     "as_graph": record({"name": identifier, "graph": _graph}),
     "as_optional_tensors": listed(_OPTIONAL_TENSOR), "as_operator": operator,
     "as_sym_float": _FLOAT_ARGUMENT, "as_sym_floats": listed(_FLOAT_ARGUMENT),
     "as_optional_tensor": _OPTIONAL_TENSOR,
     "as_complex": record({"real": number, "imag": number}),
     "as_nested_tensors": listed(listed(_TENSOR)), "as_int_lists": listed(listed(integer)),
     "as_float_lists": listed(listed(number))}
)  # fmt: skip
_STRINGS = {"as_string", "as_strings"}
_STRING_NAME = one_of(STRING_ARGUMENTS)
_SCHEMA_NAME = matching(re.compile(r"\w*", re.ASCII))
_INPUT = {"arg": _ARGUMENT, "kind": optional(integer)}
_INPUT_BY_KEYWORD = record({**_INPUT, "name": _keyword})
_NODE = {
    "target": operator,
    "outputs": listed(_ARGUMENT),
    "metadata": _notes,
    "is_hop_single_tensor_return": optional(boolean),
    "name": optional(identifier),
}
_NOTHING = mapping(identifier, one_of(frozenset()))
_GRAPH = record(
    {"inputs": listed(_ARGUMENT), "outputs": listed(_ARGUMENT), "nodes": listed(_node),
     "tensor_values": mapping(identifier, _TENSOR_META),
     "sym_int_values": mapping(identifier, _SYM_INT),
     "sym_bool_values": mapping(identifier, _SYM_BOOL),
     "sym_float_values": mapping(identifier, _SYM_FLOAT),
     "is_single_tensor_return": boolean, "custom_obj_values": _NOTHING}
)  # fmt: skip
_CONSTANT = union(
    {"as_none": boolean, "as_int": integer, "as_float": number, "as_string": plain_text,
     "as_bool": boolean}
)  # fmt: skip
_INPUT_SPEC = union(
    {"user_input": record({"arg": _ARGUMENT}),
     "parameter": record({"arg": _TENSOR, "parameter_name": dotted_path}),
     "buffer": record({"arg": _TENSOR, "buffer_name": dotted_path, "persistent": boolean}),
     "tensor_constant": record({"arg": _TENSOR, "tensor_constant_name": dotted_path}),
     "constant_input": record({"name": identifier, "value": _CONSTANT})}
)  # fmt: skip
_OUTPUT_SPEC = union(
    {"user_output": record({"arg": _ARGUMENT}), "loss_output": record({"arg": _TENSOR}),
     "buffer_mutation": record({"arg": _TENSOR, "buffer_name": dotted_path}),
     "parameter_mutation": record({"arg": _TENSOR, "parameter_name": dotted_path}),
     "gradient_to_parameter": record({"arg": _TENSOR, "parameter_name": dotted_path}),
     "gradient_to_user_input": record({"arg": _TENSOR, "user_input_name": identifier}),
     "user_input_mutation": record({"arg": _TENSOR, "user_input_name": identifier})}
)  # fmt: skip
_CALL = record(
    {"inputs": listed(_ARGUMENT), "outputs": listed(_ARGUMENT), "in_spec": tree_spec(identifier),
     "out_spec": tree_spec(plain_text), "forward_arg_names": optional(listed(identifier))}
)  # fmt: skip
_PROGRAM = record(
    {"graph_module": record(
        {"graph": _graph,
         "signature": record(
             {"input_specs": listed(_INPUT_SPEC), "output_specs": listed(_OUTPUT_SPEC)}
         ),
         "module_call_graph": listed(record({"fqn": dotted_path, "signature": optional(_CALL)})),
         "metadata": left_out({}), "treespec_namedtuple_fields": _NOTHING}
     ),
     "opset_version": mapping(identifier, integer),
     "range_constraints": mapping(
         range_key, record({"min_val": optional(integer), "max_val": optional(integer)})
     ),
     "schema_version": record({"major": integer, "minor": integer}),
     "verifiers": listed(identifier), "torch_version": version_text,
     "guards_code": left_out([])}
)  # fmt: skip
_PAYLOAD_NAME = matching(re.compile(r"(weight|tensor)_\d+", re.ASCII))
_PAYLOADS = record(
    {"config": mapping(
        dotted_path,
        record(
            {"path_name": _PAYLOAD_NAME,
             "is_param": boolean, "use_pickle": _no_pickle, "tensor_meta": _TENSOR_META}
        ),
    )}
)  # fmt: skip
