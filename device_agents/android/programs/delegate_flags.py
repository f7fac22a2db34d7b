"""Flags of `benchmark_model` that choose a delegate, and the options that each delegate accepts.

A backend is `builtin` (LiteRT's own kernels), a delegate that the program contains, or
`external:NAME`: the library `libNAME.so`, which lies beside the program on the phone.

Source: tflite/tools/delegates/*_provider.cc and tools/benchmark/benchmark_tflite_model.cc of
TensorFlow 1.14 to 2.20 and LiteRT; QNN's own command line in tensorflow issue 83344.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, OptionValue

EXTERNAL = "external:NAME"
"""How messages write the backend of a library that the user gives."""
_EXTERNAL = re.compile(r"external:([A-Za-z0-9_][A-Za-z0-9_.+-]{0,50})", re.ASCII)
_EXTERNAL_PATH = "--external_delegate_path="
_FOR_LIBRARY = "external_delegate_options"
_FLAGS_FOLDER = "{folder}"
"""In that option, it is the program's folder on the phone, which a user cannot know."""
XNNPACK, NO_XNNPACK = "--use_xnnpack=true", "--use_xnnpack=false"
REQUIRE_ALL = "require_full_delegation"
REQUIRED_ALL = f"--{REQUIRE_ALL}=true"
_BACKEND_FLAGS = {
    "xnnpack": (XNNPACK,),
    "builtin": (NO_XNNPACK,),
    # Half precision is the delegate's own default. We set it only on request, so it is visible.
    "gpu": ("--use_gpu=true", "--gpu_precision_loss_allowed=false"),
    "nnapi": ("--use_nnapi=true",),
}
_OPTIONS: dict[str, tuple[type, frozenset[str]]] = {
    REQUIRE_ALL: (bool, frozenset({"xnnpack", "gpu", "nnapi", EXTERNAL})),
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
_LABELS: Mapping[str, tuple[str, ...]] = {
    "num_threads": ("num threads", "#threads used for cpu inference"),
    "use_xnnpack": ("use xnnpack",),
    "xnnpack_force_fp16": ("xnnpack_force_fp16",),
    "use_gpu": ("use gpu",),
    "gpu_precision_loss_allowed": ("allow lower precision in gpu",),
    "gpu_backend": ("gpu backend",),
    "gpu_inference_for_sustained_speed": ("prefer maximizing the throughput in gpu",),
    "use_nnapi": ("use nnapi",),
    "nnapi_accelerator_name": ("nnapi accelerator name",),
    "nnapi_execution_preference": ("nnapi execution preference",),
    "disable_nnapi_cpu": ("disable nnapi cpu", "disable_nnapi_cpu"),
    "nnapi_allow_fp16": ("allow fp16 in nnapi",),
    "external_delegate_path": ("external delegate path",),
    _FOR_LIBRARY: ("external delegate options",),
    REQUIRE_ALL: ("require full delegation",),
    "max_delegated_partitions": ("max number of delegated partitions",),
    "enable_op_profiling": ("enable op profiling",),
    "input_layer": ("input layers",),
    "input_layer_shape": ("input shapes",),
    "input_layer_value_range": ("input value ranges",),
}
"""Flag to the names under which versions repeat its value, in lower case."""
_REPEATED = re.compile(r"^(?:INFO: )?([A-Za-z#][^:\[\]\n]{1,60}?) ?: \[([^\n]*)\]", re.MULTILINE)
_UNKNOWN = re.compile(r"Unconsumed cmdline flags:(.*)")
_NAMES_UNKNOWN = "log parameter values verbosely"
"""A build with this parameter repeats only what was set, and warns of a flag it does not know."""
_BOOLEANS = {"true": "1", "false": "0"}


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
        options[_FOR_LIBRARY] = options[_FOR_LIBRARY].replace(_FLAGS_FOLDER, folder)
    # The last of two equal flags counts, so the user's options follow the defaults.
    return (*chosen, *(f"--{name}={value}" for name, value in options.items()))


def backend_of(argv: tuple[str, ...]) -> str:
    """The kind of backend of a command line; it is `EXTERNAL` for every external delegate."""
    if any(item.startswith(_EXTERNAL_PATH) for item in argv):
        return EXTERNAL
    return next((b for b, flags in _BACKEND_FLAGS.items() if flags[0] in argv), "builtin")


def _flag_value(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def flags_not_applied(argv: tuple[str, ...], text: str) -> Iterator[str]:
    """The flags that the build names as unknown, or does not repeat with their values.

    Builds before 2021 ignore a flag that they do not know without a word, and repeat the value of
    every flag that they know. A text that repeats nothing proves nothing.
    """
    for found in _UNKNOWN.findall(text):
        yield from (word for word in found.split() if word.startswith("--"))
    repeated: dict[str, set[str]] = {}
    for label, value in _REPEATED.findall(text):
        repeated.setdefault(label.lower(), set()).add(value)
    tells_all = bool(repeated) and _NAMES_UNKNOWN not in repeated
    for flag in argv:
        name, _, value = flag.removeprefix("--").partition("=")
        if (labels := _LABELS.get(name)) is None:
            continue
        shown = {value for label in labels for value in repeated.get(label, ())}
        if (shown or tells_all) and _BOOLEANS.get(value, value) not in shown:
            yield flag


def has_required_all(argv: tuple[str, ...], text: str) -> bool:
    """Whether the program ended well although a node outside the delegate would have failed it.

    Args:
        argv: the command line.
        text: of a run that ended well, in which `flags_not_applied` finds none.
    """
    return REQUIRED_ALL in argv and _REPEATED.search(text) is not None
