"""Activates the barriers around a task whose file is from outside this workspace."""

from fleetrank.device_agents.confinement import landlock
from fleetrank.device_agents.confinement.audit import AuditWall
from fleetrank.device_agents.confinement.grants import grants_of
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError
from fleetrank.device_agents.host.memory import reset_peak
from fleetrank.device_agents.host.scratch import scratch_of_this_worker

TRUST_REMEDY = "if you trust its maker, run again with --trust"
AUDIT = "audit"


class Walls:
    """The barriers around this process.

    Attributes:
        names: as stored in the row: `landlock7+audit`, with the kernel's ABI; `audit` if the kernel
            has no Landlock; `landlock7` if `torch.compile` starts a compiler, which the hook
                would block.
    """

    def __init__(self, version: int | None, audit: AuditWall | None) -> None:
        self._audit = audit
        parts = (f"landlock{version}" if version else "", AUDIT if audit else "")
        self.names = "+".join(part for part in parts if part)

    def arm(self) -> None:
        """Installs the hook: after the runtime is imported and before the file is opened."""
        if self._audit is not None:
            self._audit.arm()

    def check(self) -> None:
        """Checks whether the file tried a blocked action and continued after the error.

        Raises:
            BadArtifactError: it did; the message names the first blocked action.
        """
        if self._audit is not None and self._audit.refusal is not None:
            raise BadArtifactError(
                f"the file tried to {self._audit.refusal} while it was loaded or run", TRUST_REMEDY
            )

    def cause(self, error: Exception) -> Exception:
        """The blocked action, if it caused an error; otherwise the error itself."""
        try:
            self.check()
        except BadArtifactError as refusal:
            return refusal
        return error


def confine(task: MeasureTask | InferTask) -> Walls:
    """Confines this process permanently; call it while one thread runs, before any library loads.

    Raises:
        UnsupportedError: the task starts a compiler, which this kernel cannot confine.
        OSError: the kernel has Landlock but rejects its use.
    """
    grants = grants_of(task, scratch_of_this_worker())
    version = landlock.abi()
    if grants.starts_programs and (version is None or version < landlock.NETWORK_ABI):
        raise UnsupportedError(
            "mode compile starts a compiler for a file from outside, and this kernel cannot "
            "confine what it starts (Landlock of Linux 6.7 or later)",
            f"use mode eager; {TRUST_REMEDY}",
        )
    reset_peak()  # opens a file that the kernel would block later
    if version is not None:
        landlock.restrict(grants, version)
    return Walls(version, None if grants.starts_programs else AuditWall(grants))
