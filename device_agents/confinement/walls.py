"""Raises the walls around a task whose file this workspace did not make."""

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
    """What stands around this process.

    Attributes:
        names: as the row has it: `landlock7+audit`, with the kernel's ABI; `audit` where the kernel
            has no Landlock; `landlock7` where `torch.compile` starts a compiler, which the hook
            would refuse.
    """

    def __init__(self, version: int | None, audit: AuditWall | None) -> None:
        self._audit = audit
        parts = (f"landlock{version}" if version else "", AUDIT if audit else "")
        self.names = "+".join(part for part in parts if part)

    def arm(self) -> None:
        """Puts up the hook: after the runtime is imported and before the file is opened."""
        if self._audit is not None:
            self._audit.arm()

    def check(self) -> None:
        """Looks whether the file tried something and went on when it was refused.

        Raises:
            BadArtifactError: it did; the message says what came first.
        """
        if self._audit is not None and self._audit.refusal is not None:
            raise BadArtifactError(
                f"the file tried to {self._audit.refusal} while it was loaded or run", TRUST_REMEDY
            )

    def cause(self, error: Exception) -> Exception:
        """What the file tried, where that is behind an error; else the error itself."""
        try:
            self.check()
        except BadArtifactError as refusal:
            return refusal
        return error


def confine(task: MeasureTask | InferTask) -> Walls:
    """Confines this process for good; to be called while it has one thread, before any library.

    Raises:
        UnsupportedError: the task starts a compiler, and the kernel cannot hold what that starts.
        OSError: the kernel has Landlock and refuses to use it.
    """
    grants = grants_of(task, scratch_of_this_worker())
    version = landlock.abi()
    if grants.starts_programs and (version is None or version < landlock.NETWORK_ABI):
        raise UnsupportedError(
            "mode compile starts a compiler for a file from outside, and this kernel cannot "
            "confine what it starts (Landlock of Linux 6.7 or later)",
            f"use mode eager; {TRUST_REMEDY}",
        )
    reset_peak()  # opens what the kernel would refuse to open later
    if version is not None:
        landlock.restrict(grants, version)
    return Walls(version, None if grants.starts_programs else AuditWall(grants))
