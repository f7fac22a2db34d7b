"""Evaluations by the command line, and the rows that they store."""

from pathlib import Path

import torch

from fleetrank.analysis.stored.side_tables import EVALUATIONS, read_side
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.networks.build import build_network
from fleetrank.orchestrator.cli.main import run

LM_EVAL = Path(__file__).parents[1] / "data" / "lm_eval"
MODEL = "stories260k"


def evaluated(folder: Path, *words: str) -> dict[str, dict[str, object]]:
    """The stored rows of one `fleetrank eval`, by task and metric."""
    before = read_side(folder / "results", EVALUATIONS).height
    assert run(["eval", *words, "--workspace", str(folder)]) == 0
    rows = read_side(folder / "results", EVALUATIONS)[before:].to_dicts()
    return {f"{row['task']} {row['quality_metric']}": row for row in rows}


def uniform_weights(folder: Path) -> Path:
    """A checkpoint of zeros, with which each token has the same probability."""
    card = load_cards(folder / "cards").find(MODEL)
    network = build_network(card, is_pretrained=False, is_trusted=False).network
    zeros = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    torch.save(zeros, folder / "uniform.pt")
    return folder / "uniform.pt"
