"""The rows that an evaluation stores: its metrics, what was evaluated, and where it ran."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.foundation.installation import package_versions
from fleetrank.foundation.vocabulary import WeightsKind
from fleetrank.orchestrator.evaluation.quality_metrics import Metric
from fleetrank.orchestrator.evaluation.scoring import Scorer, Unfinished
from fleetrank.orchestrator.evaluation.subject import SEEDED, Subject
from fleetrank.orchestrator.one_export import ExportTools
from fleetrank.orchestrator.store.side import append_side
from fleetrank.orchestrator.workspace.provenance import git_commit, new_sweep_id
from fleetrank.orchestrator.workspace.workspace import Workspace

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published accuracy to compare with.

    Attributes:
        tolerance: in points; a larger difference is the flag `accuracy_differs`.
    """

    value: float | None = None
    source: str | None = None
    tolerance: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """What every evaluation needs.

    Attributes:
        done: is called with a task, its scored cases, those of an earlier run, and their number.
    """

    workspace: Workspace
    subject: Subject
    tools: ExportTools
    done: Callable[[str, int, int, int], None] = field(default=lambda *_: None)

    def head(self, items: Sequence[object]) -> int:
        """How many of the items are evaluated."""
        return min(self.subject.where.limit or len(items), len(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One evaluation that was scored.

    Attributes:
        runtime_version: of the library on the device; `None` if an earlier run scored all cases.
        is_finite: whether the model gave every target a probability.
    """

    scorer: Scorer
    unfinished: Unfinished
    started: datetime
    runtime_version: str | None
    is_finite: bool


def limit_fact(run: EvalRun, n_items: int) -> Row:
    """The column `item_limit`: null if every item is evaluated."""
    limit = run.subject.where.limit
    return {"item_limit": limit if limit is not None and limit < n_items else None}


def store_metrics(
    run: EvalRun,
    asked: Asked,
    facts: Row,
    metrics: Sequence[Metric],
    published: Published | None = None,
) -> list[Row]:
    """Stores one row for each metric, forgets the unfinished figures, and returns the rows.

    Args:
        run: the evaluation.
        asked: how its cases were scored.
        facts: values of further columns.
        metrics: the first one is compared with the published value.
        published: of the first metric.

    Raises:
        StoreError: the rows cannot be written; the unfinished figures are kept.
    """
    base = _identity(run, asked)
    rows: list[Row] = []
    for number, metric in enumerate(metrics):
        # The published accuracy is that of the first metric.
        known = published if number == 0 and published is not None else Published()
        rows.append(
            {
                **base,
                **facts,
                "quality_metric": metric.name,
                "quality": metric.value,
                "quality_low": metric.low,
                "quality_high": metric.high,
                "baseline": metric.baseline,
                "n_items": metric.n_items,
                "right_items": metric.right_items,
                "window_losses": metric.window_losses,
                "published": known.value,
                "published_source": known.source,
                "flags": _flags(run, asked, facts, metric, known),
            }
        )
    append_side(run.workspace.results, EVALUATIONS, rows)
    asked.unfinished.remove()
    return rows


def _flags(run: EvalRun, asked: Asked, facts: Row, metric: Metric, known: Published) -> list[str]:
    flags = [SEEDED] if run.subject.weights.kind is WeightsKind.SEEDED else []
    if facts["item_limit"] is not None:
        flags.append("limited")
    if not asked.is_finite:
        flags.append("not_finite")
    if known.value is not None and metric.value is not None:
        differs = abs(metric.value - known.value) > known.tolerance
        flags += ["accuracy_differs"] if differs else []
    return flags


def _identity(run: EvalRun, asked: Asked) -> Row:
    subject, card = run.subject, run.subject.model.card
    return {
        "evaluation_id": new_sweep_id("eval"),
        "model": card.name,
        "family": card.family.value,
        "card_sha256": subject.model.sha256,
        "weights": subject.weights_name,
        "weights_sha256": subject.weights.checkpoint_sha256,
        "device": subject.device.name,
        "runtime": subject.runtime.value,
        "backend": asked.scorer.execution.backend,
        "precision": subject.precision.value,
        "recipe": subject.request().recipe,
        "artifact_sha256": asked.scorer.artifact.sha256,
        "runtime_version": asked.runtime_version,
        "fleetrank_version": package_versions(["fleetrank"]).get("fleetrank"),
        "git_commit": git_commit(run.workspace.root),
        "started_utc": asked.started,
        "finished_utc": datetime.now(UTC),
    }
