"""Chooses the GPU, and checks whether this process may use it: pure."""

from collections.abc import Sequence

from fleetrank.device_agents.cuda.library import Found, Gpu
from fleetrank.device_agents.errors import PermanentError, TransientError, UnusableDeviceError

VISIBLE = "CUDA_VISIBLE_DEVICES"


def choose_gpu(found: Found, *, wanted: str | None, visible: str | None) -> Gpu:
    """Returns the GPU or MIG instance with this UUID, or the only one that exists.

    Args:
        found: the driver's list.
        wanted: a UUID, or a prefix of it.
        visible: the environment's CUDA_VISIBLE_DEVICES; `None` if it is not set.

    Raises:
        TransientError: it is not listed, and a GPU of this host has fallen off the bus.
        UnusableDeviceError: it does not exist, is hidden, or is divided into instances.
        PermanentError: the option is not set, and several GPUs exist.
    """
    usable = [gpu for gpu in found.gpus if not gpu.is_divided]
    shown = visible_gpus(found.gpus, visible)
    if wanted is None:
        return _only(shown, usable, found, visible)
    gpu = next((gpu for gpu in found.gpus if gpu.uuid.startswith(wanted)), None)
    if gpu is None:
        raise _missing(wanted, found)
    if gpu.is_divided:
        instances = [other for other in usable if other.parent_uuid == gpu.uuid]
        raise UnusableDeviceError(
            f"the GPU {gpu.uuid} is in MIG mode and cannot run programs itself",
            f"register one of its instances: {_listed(instances)}",
        )
    if gpu not in shown:
        raise UnusableDeviceError(
            f"{VISIBLE}={visible} hides the GPU {gpu.uuid}",
            f"unset {VISIBLE}, or add {gpu.uuid} to it, where fleetrank or its Ray is started",
        )
    return gpu


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """The GPUs that CUDA would show, in CUDA's order.

    An index counts in PCI order, as CUDA counts if all GPUs are of the same model.

    Source: CUDA programming guide, environment variables: a list of indices, of beginnings of
        `GPU-` or of `MIG-` UUIDs; GPUs after the first unknown entry are hidden.
    """
    usable = [gpu for gpu in gpus if not gpu.is_divided]
    if visible is None:
        return usable
    shown: list[Gpu] = []
    for entry in visible.split(","):
        named = [gpu for gpu in usable if _is_named(gpu, entry.strip())]
        if not named:
            break
        shown += [gpu for gpu in named if gpu not in shown]
    return shown


def _is_named(gpu: Gpu, entry: str) -> bool:
    if entry.isdecimal():
        return gpu.index == int(entry)
    return entry.startswith(("GPU-", "MIG-")) and (
        gpu.uuid.startswith(entry) or (gpu.parent_uuid or "").startswith(entry)
    )


def _only(shown: Sequence[Gpu], usable: Sequence[Gpu], found: Found, visible: str | None) -> Gpu:
    if len(shown) == 1:
        return shown[0]
    if shown:
        raise PermanentError(
            f"this host has {len(shown)} GPUs, but the device does not name one",
            f"set the option uuid of the device to one of: {_listed(shown)}",
        )
    if usable:
        raise UnusableDeviceError(
            f"{VISIBLE}={visible} hides every GPU of this host",
            f"unset {VISIBLE} where fleetrank or its Ray is started",
        )
    if found.n_lost:
        raise _lost("the GPU")
    if found.gpus:
        raise UnusableDeviceError(
            "this host's GPUs are in MIG mode and have no instances",
            "create instances with `nvidia-smi mig`, or disable MIG mode",
        )
    raise UnusableDeviceError(
        "the NVIDIA driver lists no GPU", "check `nvidia-smi`, and the permissions of a container"
    )


def _missing(wanted: str, found: Found) -> TransientError | UnusableDeviceError:
    if found.n_lost:
        return _lost(f"the GPU {wanted}")
    return UnusableDeviceError(
        f"this host has no GPU {wanted}", f"register one of its GPUs: {_listed(found.gpus)}"
    )


def _lost(what: str) -> TransientError:
    return TransientError(
        f"{what} does not answer: a GPU of this host has fallen off the bus",
        "look for Xid messages in `dmesg`; it returns after a reset or a reboot",
    )


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in gpus) or "none"
