"""Reads number types and inputs of an ExecuTorch program, as far as delegates leave them readable.

Source: executorch/schema/program.fbs and scalar_type.fbs (1.5) for field numbers and types.
"""

from fleetrank.foundation.flatbuffer import FlatBufferTable
from fleetrank.foundation.onnx_file import StoredInput
from fleetrank.models.pt2_types import PACKED, QUANTISED
from fleetrank.models.stored_types import MOST_DIMENSIONS, StoredTypes, elements_of

_PROGRAM_PLANS = 1
_PLAN_VALUES, _PLAN_INPUTS, _PLAN_OUTPUTS, _PLAN_OPERATORS, _PLAN_DELEGATES = 2, 3, 4, 6, 7
_OPERATOR_NAME = 0
_VALUE_KIND, _VALUE = 0, 1
_IS_TENSOR, _IS_STRING = 5, 6
"""Places in the union `KernelTypes`, which counts from 1."""
_PTE_TENSOR_TYPE, _TENSOR_SIZES, _PTE_TENSOR_BUFFER = 0, 2, 5
_PTE_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 11: "bool", 12: "int8", 13: "uint8", 15: "bfloat16",
}  # fmt: skip


def pte_types(data: bytes) -> StoredTypes:
    """The types of the first method: tensors with a constant buffer, inputs and outputs.

    Weights of a delegated part are inside the delegate's own data, which is not read.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: it is not a program.
    """
    plan = _plan(data)
    values = list(plan.tables(_PLAN_VALUES))
    tensors = [_pte_tensor(value) for value in values]
    inputs = plan.numbers(_PLAN_INPUTS)
    operators = [operator.text(_OPERATOR_NAME) for operator in plan.tables(_PLAN_OPERATORS)]
    ends = [
        tuple(_pte_type(tensor) for i in end if (tensor := tensors[i]) is not None)
        for end in (inputs, plan.numbers(_PLAN_OUTPUTS))
    ]
    return StoredTypes(
        weights=tuple(
            (_pte_type(tensor), elements_of(tensor.numbers(_TENSOR_SIZES, MOST_DIMENSIONS)))
            for tensor in tensors
            if tensor is not None and tensor.number(_PTE_TENSOR_BUFFER)
        ),
        inputs=ends[0],
        outputs=ends[1],
        strings=tuple(
            f"input_{place}"
            for place, number in enumerate(inputs)
            if values[number].number(_VALUE_KIND, "<B") == _IS_STRING
        ),
        hides_weights=plan.length(_PLAN_DELEGATES) > 0 or any(map(PACKED.search, operators)),
        is_quantised=any(map(QUANTISED.match, operators)),
    )


def pte_inputs(data: bytes) -> list[StoredInput]:
    """The inputs of the first method, called `input_0` on; sizes are the largest possible ones.

    Raises:
        struct.error: a table is beyond the end of the file.
        IndexError: an input is not a value of the program.
        ValueError: it is not a program.
    """
    plan = _plan(data)
    values = list(plan.tables(_PLAN_VALUES))
    found = []
    for place, at in enumerate(plan.numbers(_PLAN_INPUTS)):
        tensor = _pte_tensor(values[at])
        dtype = "" if tensor is None else _pte_type(tensor)
        sizes = () if tensor is None else tensor.numbers(_TENSOR_SIZES, MOST_DIMENSIONS)
        found.append(StoredInput(name=f"input_{place}", dtype=dtype, sizes=sizes))
    return found


def _plan(data: bytes) -> FlatBufferTable:
    plan = next(FlatBufferTable.root(data).tables(_PROGRAM_PLANS), None)
    if plan is None:
        raise ValueError("no method")
    return plan


def _pte_tensor(value: FlatBufferTable) -> FlatBufferTable | None:
    return value.table(_VALUE) if value.number(_VALUE_KIND, "<B") == _IS_TENSOR else None


def _pte_type(tensor: FlatBufferTable) -> str:
    return _PTE_TYPES.get(tensor.number(_PTE_TENSOR_TYPE, "<B"), "")
