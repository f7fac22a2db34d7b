"""The page of the study's claims: what `report show claims` says of public data.

`claims/NAME.csv` is the output of the command with `--format csv`; the page changes with it. Each
figure of the study must be the one of the file of claims.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleetrank.analysis.statistics.claims.claim_file import study_claims
from fleetrank.analysis.statistics.claims.claims import ClaimVerdict
from fleetrank.foundation.errors import BadFileError

_FOLDER = Path(__file__).with_name("claims")
_INTRO = """# The claims of the study

`fleetrank report show claims` looks up each claim of the study in your rows and says whether it
holds here. `--claims FILE` takes the claims of another study:
`analysis/statistics/claims/study.toml` is the example.

A claim *holds* if the interval of the figure here holds the study's value and excludes the null,
which is the residual null where it is known. It *does not hold* if the interval excludes the value.
Otherwise it *cannot be told*. With few models an interval is wide and holds nearly every value:
read the interval, not the word.

Rho has no direction. So GPU to edge and edge to GPU are one figure here, and the study has two.
That 99.5 % of runs are saved is arithmetic, as one of N platforms is measured; the claim is the F1
of the frontier that is bought with it.

Figures, numbers of models and pairs, and nulls that are no random draws were computed a second time
from the raw files of timm, of twelve models of AI Hub, of both together, and of the demo, with
exact fractions and without fleetrank: they are equal to 1e-9. A test repeats it for the demo.

`--columns claim,found,reason` says where each figure was looked for, and why it is missing."""
_SETS: Mapping[str, tuple[str, str]] = {
    "ai-hub": (
        "AI Hub v0.46.1",
        "All models of quic/ai-hub-models at 52c080d2, on phones and boards: `results import PATH "
        "--from qai-hub`.",
    ),
    "timm": (
        "timm",
        "huggingface/pytorch-image-models at aa4b5850, three GPUs and two CPUs at unlike batches: "
        "`results import PATH --from timm`, then `--allow-unlike-batch`. It states no memory.",
    ),
    "ai-hub-and-timm": (
        "AI Hub beside timm",
        "Both in one workspace, the only public rows from GPU to edge: few networks are equal in "
        "both, and the batch is 1,024 on GPUs and 1 on edge devices (`--allow-unlike-batch`).",
    ),
    "edge-compat": (
        "edge-compat",
        "edge-compat 0.1.0, on phones, a board and a laptop: it states neither FLOPs nor memory.",
    ),
    "cpu": (
        "One CPU, three runtimes",
        "The 13 networks of the study on a virtual machine with two cores, with ONNX Runtime, "
        "PyTorch and TFLite, in rounds: 20 processes of each at 1 thread, two or three at 2.",
    ),
}
_HEAD = (
    "claim", "verdict", "study", "figure", "interval", "models", "null", "residual null", "ceiling",
)  # fmt: skip
_NO_DATA = """## What no data here can tell

Of these claims each set of rows lacks the figure or its interval, or the interval also holds the
null:"""
_WHY = """What would tell more: the networks of the study on a GPU, a CPU and phones at batch 1,
with memory and repeats. No public source has them together."""


def claims_page() -> str:
    """Markdown: a table of claims for each set of rows, and the claims that none can tell.

    Raises:
        BadFileError: a recorded table has other claims than the file: make it again.
    """
    found = {name: _rows(name) for name in _SETS if (_FOLDER / f"{name}.csv").exists()}
    parts = [_INTRO]
    for name, rows in found.items():
        title, text = _SETS[name]
        n_missing = sum(not row["figure"] for row in rows)
        lacking = f"{n_missing} of {len(rows)} claims have no figure in these rows."
        parts += [f"## {title}", text, "\n".join(_table(rows)), lacking]
    open_in = [
        {row["claim"].partition(" (")[0] for row in rows if row["verdict"] == ClaimVerdict.OPEN}
        for rows in found.values()
    ]
    claims = [one.claim for one in study_claims().claims]
    nowhere = [f"- {claim}" for claim in claims if all(claim in some for some in open_in)]
    parts += [_NO_DATA, "\n".join(nowhere), _WHY]
    return "\n\n".join(parts) + "\n"


def _rows(name: str) -> list[dict[str, str]]:
    path = _FOLDER / f"{name}.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    stated = [(one.claim, one.value) for one in study_claims().claims]
    # A note may stand behind a claim, such as (without memory).
    claims = [row["claim"].partition(" (")[0] for row in rows]
    values = [float(row["study"]) if row["study"] else None for row in rows]
    if [*zip(claims, values, strict=True)] != stated:
        raise BadFileError(
            f"{path.name} has other claims than the file of claims",
            "write it again: `fleetrank report show claims --format csv`",
        )
    return rows


def _table(rows: list[dict[str, str]]) -> Iterator[str]:
    """The claims with a figure, without columns that are empty."""
    grid = [_cells(row) for row in rows if row["figure"]]
    kept = [at for at in range(len(_HEAD)) if any(cells[at] for cells in grid)]
    yield f"| {' | '.join(_HEAD[at] for at in kept)} |"
    yield f"|---|---|{'---:|' * (len(kept) - 2)}"
    for cells in grid:
        yield f"| {' | '.join(cells[at] for at in kept)} |"


def _cells(row: dict[str, str]) -> tuple[str, ...]:
    texts = {name: f"{float(row[name]):.3g}" if row[name] else "" for name in _NUMBERS}
    interval = f"{texts['low']} to {texts['high']}" if texts["low"] else ""
    return (
        row["claim"], row["verdict"], texts["study"], texts["figure"], interval, row["n_models"],
        texts["null"], texts["residual_null"], texts["ceiling"],
    )  # fmt: skip


_NUMBERS = ("study", "figure", "low", "high", "null", "residual_null", "ceiling")
