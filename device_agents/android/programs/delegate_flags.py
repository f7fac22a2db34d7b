"""Flags of `benchmark_model` that choose a delegate, and the options that each delegate accepts.

A backend is `builtin` (LiteRT's own kernels), a delegate that the program contains, or
`external:NAME`: the library `libNAME.so`, which lies beside the program on the phone.

Source: tflite/tools/delegates/external_delegate_provider.cc of LiteRT; QNN's own command line in
    tensorflow issue 83344.
"""

import re
from dataclasses import replace

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, OptionValue

EXTERNAL = "external:NAME"
"""How messages write the backend of a library that the user gives."""
_EXTERNAL = re.compile(r"external:([A-Za-z0-9_][A-Za-z0-9_.+-]{0,50})", re.ASCII)
_EXTERNAL_PATH = "--external_delegate_path="

_FOR_LIBRARY = "external_delegate_options"
_FOLDER = "{folder}"
"""In that option, it is the program's folder on the phone, which a user cannot know."""

XNNPACK = "--use_xnnpack=true"
_BACKEND_FLAGS = {
    "xnnpack": (XNNPACK,),
    "builtin": ("--use_xnnpack=false",),
    # Half precision is the delegate's own default. We set it only on request, so it is visible.
    "gpu": ("--use_gpu=true", "--gpu_precision_loss_allowed=false"),
    "nnapi": ("--use_nnapi=true",),
}

_OPTIONS: dict[str, tuple[type, frozenset[str]]] = {
    "require_full_delegation": (bool, frozenset({"xnnpack", "gpu", "nnapi", EXTERNAL})),
    "max_delegated_partitions": (int, frozenset({"gpu", "nnapi"})),
    "xnnpack_force_fp16": (bool, frozenset({"xnnpack"})),
    "gpu_precision_loss_allowed": (bool, frozenset({"gpu"})),
    "gpu_backend": (str, frozenset({"gpu"})),
    "gpu_inference_for_sustained_speed": (bool, frozenset({"gpu"})),
    "nnapi_accelerator_name": (str, frozenset({"nnapi"})),
    "nnapi_execution_preference": (str, frozenset({"nnapi"})),
    "disable_nnapi_cpu": (bool, frozenset({"nnapi"})),
    "nnapi_allow_fp16": (bool, frozenset({"nnapi"})),
    _FOR_LIBRARY: (str, frozenset({EXTERNAL})),
}
"""Option to its type and the backends that accept it; the flag has the option's name."""

CAPABILITY = Capability(backends=(*_BACKEND_FLAGS, EXTERNAL), option_names=frozenset(_OPTIONS))


def library_of(backend: str) -> str | None:
    """The file name of an external delegate; `None` for every other backend."""
    named = _EXTERNAL.fullmatch(backend)
    return None if named is None else f"lib{named[1]}.so"


def backend_of_library(file_name: str) -> str | None:
    """The backend of an external delegate's library; `None` if the file has no such name."""
    backend = f"external:{file_name.removeprefix('lib').removesuffix('.so')}"
    return backend if library_of(backend) == file_name else None


def why_not_delegated(execution: Execution, program: str) -> str | None:
    """Says why the program has no such backend, or the backend no such option; else `None`."""
    kind = EXTERNAL if library_of(execution.backend) else execution.backend
    known = replace(execution, backend=kind)
    if (unknown := CAPABILITY.why_unsupported(known, program)) is not None:
        return unknown
    for option, value in execution.options:
        wanted, backends = _OPTIONS[option]
        if kind not in backends:
            accepted = ", ".join(sorted(backends))
            return f"option {option} is not supported by {kind}; it is for {accepted}"
        if type(value) is not wanted:
            return f"option {option} is {value!r}; it must be of type {wanted.__name__}"
    return None


def delegate_flags(execution: Execution, folder: str) -> tuple[str, ...]:
    """The flags of a backend and its options.

    Args:
        execution: what `why_not_delegated` accepts.
        folder: of the program on the phone, with the libraries that were given with it.
    """
    library = library_of(execution.backend)
    chosen = (
        _BACKEND_FLAGS[execution.backend]
        if library is None
        else (f"{_EXTERNAL_PATH}{folder}/{library}",)
    )
    options = {name: _flag_value(value) for name, value in execution.options}
    if _FOR_LIBRARY in options:
        options[_FOR_LIBRARY] = options[_FOR_LIBRARY].replace(_FOLDER, folder)
    # The last of two equal flags counts, so the user's options follow the defaults.
    return (*chosen, *(f"--{name}={value}" for name, value in options.items()))


def backend_of(argv: tuple[str, ...]) -> str:
    """The kind of backend of a command line; it is `EXTERNAL` for every external delegate."""
    if any(item.startswith(_EXTERNAL_PATH) for item in argv):
        return EXTERNAL
    return next((b for b, flags in _BACKEND_FLAGS.items() if flags[0] in argv), "builtin")


def _flag_value(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
