"""Evaluations by the command line, and the rows that they store."""

from pathlib import Path

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.orchestrator.cli.main import run

LM_EVAL = Path(__file__).parents[1] / "data" / "lm_eval"
MODEL = "stories260k"


def evaluated(folder: Path, *words: str) -> dict[str, dict[str, object]]:
    """The stored rows of one `fleetrank eval`, by task and metric."""
    before = read_side(folder / "results", EVALUATIONS).height
    assert run(["eval", *words, "--workspace", str(folder)]) == 0
    rows = read_side(folder / "results", EVALUATIONS)[before:].to_dicts()
    return {f"{row['task']} {row['quality_metric']}": row for row in rows}
