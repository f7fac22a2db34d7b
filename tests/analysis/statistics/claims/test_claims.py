"""The table of claims: figures of other tables, verdicts, and files that are hostile."""

import csv
import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from figures_by_hand import Figure, Model, Platform, claims_by_hand, figures_by_hand
from wording import has

from fleetrank.analysis.importers import csv_map
from fleetrank.analysis.statistics.claims import claim_file
from fleetrank.analysis.statistics.claims.claim_file import Rule, parse_claims, study_claims
from fleetrank.analysis.statistics.claims.claims import CheckedClaim, ClaimVerdict, verdict_of
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table
from fleetrank.foundation.errors import BadFileError
from fleetrank.models.cards import zoo
from fleetrank.orchestrator.cli.main import run

ONE = """
title = "One"
[figures.rho]
table = "transfer"
row = {{ level = "tier", measure = "latency" }}
column = "rho"
{figure}
[[claims]]
claim = "they agree"
figure = {names}
value = 0.9
{claim}
"""


def file_of(*, figure: str = "", claim: str = "", names: str = '["rho"]') -> str:
    return ONE.format(figure=figure, claim=claim, names=names)


@pytest.fixture
def fleet(make_grid) -> pl.LazyFrame:
    """A GPU and two phones, 12 models, no memory on the second phone."""
    rng = np.random.default_rng(5)
    base = np.sort(rng.uniform(1, 100, 12))
    series = {name: (base * np.exp(rng.normal(0, 0.3, 12))).tolist() for name in ("g", "p", "q")}
    return make_grid(
        series,
        flops=[round(1e9 * one) for one in base],
        memory=[round(1e6 * one) for one in base[::-1]],
        accuracy=np.linspace(60, 80, 12).tolist(),
        g={"tier": "gpu"}, p={"tier": "edge"}, q={"tier": "edge"},
    )  # fmt: skip


def claims_of(frame: pl.LazyFrame, text: str = "", **chosen: object) -> Table:
    settings = (("claims", text),) if text else ()
    return make_table("claims", frame, Selection(settings=settings, **chosen))  # type: ignore[arg-type]


def row_of(table: Table, claim: str) -> dict[str, object]:
    (row,) = table.frame.filter(claim=claim).to_dicts()
    return row


@pytest.mark.parametrize(
    ("rule", "low", "high", "null", "residual_null", "expected"),
    [
        (Rule.EQUAL, 0.8, 0.95, 0.1, None, "holds"),
        (Rule.EQUAL, 0.8, 0.95, None, None, "holds"),
        (Rule.EQUAL, 0.91, 0.95, 0.1, None, "does not hold"),
        (Rule.EQUAL, 0.7, 0.89, 0.8, None, "does not hold"),
        (Rule.EQUAL, 0.8, 0.95, 0.85, None, "cannot be told"),
        (Rule.EQUAL, 0.8, 0.95, 0.85, 0.7, "holds"),
        (Rule.EQUAL, 0.8, 0.95, 0.1, 0.85, "cannot be told"),
        (Rule.EQUAL, None, None, None, None, "cannot be told"),
        (Rule.BELOW, 0.5, 0.8, None, None, "holds"),
        (Rule.BELOW, 0.8, 0.95, None, None, "cannot be told"),
        (Rule.BELOW, 0.91, 0.95, None, None, "does not hold"),
        (Rule.ABOVE, 0.91, 0.95, None, None, "holds"),
        (Rule.ABOVE, 0.5, 0.8, None, None, "does not hold"),
    ],
)
def test_the_interval_decides(rule, low, high, null, residual_null, expected) -> None:
    here = CheckedClaim(
        claim="c",
        study=0.9,
        figure=0.85,
        low=low,
        high=high,
        null=null,
        residual_null=residual_null,
    )
    verdict, why = verdict_of(here, 0.9, rule)
    assert verdict == expected
    assert (why is None) is (verdict is not ClaimVerdict.OPEN)


def test_a_figure_that_is_missing_cannot_be_told() -> None:
    assert verdict_of(CheckedClaim(claim="c", study=1), 1, Rule.EQUAL)[0] is ClaimVerdict.OPEN


@pytest.mark.slow
def test_figures_are_those_of_the_tables(fleet) -> None:
    table = claims_of(fleet)
    row = row_of(table, "GPU to edge: rho of latency")
    tiers = make_table("transfer", fleet, Selection()).frame.filter(level="tier", source="gpu")
    expected = tiers.filter(measure="latency", target="edge").to_dicts()[0]
    pairs = (("figure", "rho"), ("null", "null_mean"), ("residual_null", "residual_null_mean"))
    for mine, theirs in (*pairs, ("low", "low"), ("high", "high"), ("n_models", "n_models")):
        assert row[mine] == expected[theirs], mine
    assert has(row["found"], "transfer", "tier", "latency", "gpu", "edge")
    assert row_of(table, "Edge to GPU: rho of latency")["figure"] == row["figure"]
    assert has(table.notes, "Of 27 claims", "hold", "cannot be told")
    beside = row_of(table, "The same of the cube root of latency, without FLOPs and memory")
    assert (beside["verdict"], beside["study"]) == (None, None)
    assert beside["figure"] is not None


@pytest.mark.slow
def test_figures_of_a_fleet_are_those_made_by_hand(fleet) -> None:
    rows = fleet.collect()
    models = {
        name: Model(flops=flops, accuracy=accuracy, family=family)
        for name, flops, accuracy, family in rows.select(
            "model", "flops", "accuracy_top1", "family"
        ).iter_rows()
    }
    platforms = [
        Platform(
            device=str(device), tier=mine["tier"][0], runtime=mine["runtime"][0],
            latency=dict(zip(mine["model"], map(Fraction, mine["latency_p50_ns"]), strict=True)),
            memory=dict(zip(mine["model"], mine["peak_memory_bytes"], strict=True)),
        )
        for (device,), mine in rows.group_by("device")
    ]  # fmt: skip
    hand = figures_by_hand(models, platforms)
    assert_by_hand(claims_of(fleet).frame.to_dicts(), claims_by_hand(STUDY, hand))
    tier = (
        file_of(claim='row = { source = "gpu", target = "edge" }')
        .replace('"transfer"', '"frontier"')
        .replace(', measure = "latency"', "")
    )
    for name in ("precision", "recall", "f1"):
        found = claims_of(fleet, tier.replace('column = "rho"', f'column = "{name}"')).frame
        ((value, *_),) = [
            figure
            for where, figure in hand[f"frontier_{name}"]
            if (where["source"], where["target"]) == ("gpu", "edge")
        ]
        assert found["figure"].item() == pytest.approx(value, abs=1e-9)


@pytest.mark.thorough
def test_figures_of_the_demo_are_those_made_by_hand_of_its_file(tmp_path, capsys) -> None:
    place = ["--workspace", str(tmp_path / "w")]
    assert run(["init", str(tmp_path / "w")]) == 0
    assert run(["results", "import", "--from", "demo", *place]) == 0
    capsys.readouterr()
    assert run(["report", "show", "claims", "--json", *place]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert sum(row["figure"] is not None for row in rows) >= N_OF_DEMO
    assert_by_hand(rows, claims_by_hand(STUDY, figures_by_hand(*demo())))


STUDY = tomllib.loads(Path(claim_file.__file__).with_name("study.toml").read_text())
N_OF_DEMO = 10


def demo() -> tuple[dict[str, Model], list[Platform]]:
    """The demo's file with FLOPs, accuracies and families of the cards."""
    folder = Path(csv_map.__file__).parent
    declared = tomllib.loads((folder / "equivalence.toml").read_text())
    equal = tomllib.loads((folder / "demo.toml").read_text())["models"]
    cards = tomllib.loads(Path(zoo.__file__).with_suffix(".toml").read_text())
    macs = {name: one["value"] for name, one in declared["macs"].items()}
    own = {k: v for some in declared["qai-hub"]["macs"].values() for k, v in some.items()}
    models, cells = dict[str, Model](), defaultdict(dict)
    for line in csv.DictReader((folder / "demo.csv").read_text().splitlines()):
        name = equal.get(line["model"], line["model"])
        card = cards.get(name, {}) if line["model"] in equal else {}
        known = macs.get(name) if card else own.get(name)
        models[name] = Model(
            flops=2 * known if known else None, accuracy=card.get("accuracy_top1"),
            family=card.get("family", "other"),
        )  # fmt: skip
        place = line["device"], line["runtime"], line["precision"]
        assert name not in cells[place], "one job of each model"
        cells[place][name] = Fraction(line["ms"]), int(line["MiB"] or 0)
    platforms = [
        Platform(
            device=device, tier="edge", runtime=runtime, rest=(precision,),
            latency={name: ms for name, (ms, _) in mine.items()},
            memory={name: mib for name, (_, mib) in mine.items() if mib},
        )
        for (device, runtime, precision), mine in cells.items()
    ]  # fmt: skip
    return models, platforms


def assert_by_hand(rows: list[dict[str, object]], hand: Mapping[str, Figure]) -> None:
    """Figures and nulls to 1e-9, and the numbers of models and pairs."""
    for row in rows:
        claim = str(row["claim"]).partition(" (")[0]
        figure, n_models, n_pairs, null = hand[claim]
        assert row["figure"] == pytest.approx(figure, abs=1e-9), claim
        assert (row["n_models"], row["n_pairs"]) == (n_models, n_pairs), claim
        if null is not None:
            assert row["null"] == pytest.approx(null, abs=1e-9), claim


@pytest.mark.slow
def test_a_file_of_other_claims_takes_the_first_figure_that_is_there(fleet) -> None:
    text = file_of(names='["none", "rho"]') + (
        '[figures.none]\ntable = "transfer"\nrow = { measure = "no such" }\ncolumn = "rho"\n'
    )
    table = claims_of(fleet, text.replace("0.9", "-0.9"))
    assert table.title == "One"
    row = table.frame.to_dicts()[0]
    assert row["figure"] is not None
    assert row["verdict"] == "does not hold"
    assert has(row["reason"], "mean", "2 rows")
    alone = claims_of(fleet, file_of(claim="least_rows = 3")).frame.to_dicts()[0]
    assert (alone["verdict"], alone["figure"]) == ("cannot be told", None)
    assert has(alone["reason"], "2 such rows", "3")
    # The table has no such source by any measure: the next figure, of a wrong column, is not tried.
    nowhere = file_of(names='["rho", "none"]', claim='row = { source = "h" }') + (
        '[figures.none]\ntable = "transfer"\ncolumn = "roh"\n'
    )
    assert has(claims_of(fleet, nowhere).frame["reason"].item(), "no", "row")
    selected = file_of(claim='selection = { source = "no-such*" }')
    assert has(claims_of(fleet, selected).frame["reason"].item(), "no-such*")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\x00", ()),
        # A text, never a path that is opened.
        ("/etc/hostname", ()),
        ("title = 1", ("title",)),
        ("[" * 5000, ()),
        (file_of(claim="valu = 3"), ("valu", "value")),
        (file_of(figure='tabel = "x"'), ("tabel", "table")),
        (file_of(figure='beside = { lowest = "x" }'), ("lowest", "low")),
        (file_of().replace('"transfer"', '"transfr"'), ("figures.rho", "transfer")),
        (file_of().replace('"transfer"', '"trust/nothing"'), ("figures.rho", "nothing")),
        (file_of().replace('"transfer"', '"claims"'), ("figures.rho", "claims")),
        (file_of(figure='settings = { alon = "sweep" }'), ("alon", "along")),
        (file_of(figure='settings = { along = "devices" }'), ("along", "device")),
        (file_of(names='["roh"]'), ("claim 1", "roh", "rho")),
        (file_of(names="[]"), ("claim 1",)),
        (file_of().replace("0.9", "nan"), ("value",)),
        (file_of().replace("0.9", '"0.9"'), ("value",)),
        (file_of(claim='rule = "beneath"'), ("rule", "below")),
        (file_of(claim='selection = { source_teir = "gpu" }'), ("source_teir", "source_tier")),
        (file_of(claim='selection = { set = "x" }'), ("set",)),
        (file_of().replace("they agree", "\\u001b[2J"), ("claims", "plain text")),
        (file_of().replace("they agree", "x" * 400), ("claims", "300")),
        (file_of().partition("[[claims]]")[0] + "claims = []", ("claims",)),
    ],
)
def test_a_hostile_file_is_a_message_with_file_place_and_remedy(text: str, words) -> None:
    with pytest.raises(BadFileError) as caught:
        parse_claims(text, "mine.toml")
    assert "mine.toml" in caught.value.message
    assert caught.value.remedy
    for word in words:
        assert word in f"{caught.value.message} {caught.value.remedy}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "word"),
    [
        (file_of().replace('column = "rho"', 'column = "roh"'), "rho"),
        (file_of().replace("measure =", "meazure ="), "measure"),
        (file_of(figure='beside = { low = "lowest" }'), "low"),
        (file_of().replace('column = "rho"', 'column = "source"'), "numbers"),
        (
            file_of(claim='row = { flags = "spread" }')
            .replace('"transfer"', '"trust/flags"')
            .replace('row = { level = "tier", measure = "latency" }', "")
            .replace('column = "rho"', 'column = "n_repeats"'),
            "words",
        ),
    ],
)
def test_a_column_that_its_table_lacks_is_a_message(fleet, given: str, word: str) -> None:
    with pytest.raises(BadFileError) as caught:
        claims_of(fleet, given)
    assert "figures.rho" in caught.value.message
    assert word in f"{caught.value.message} {caught.value.remedy}"


def test_the_claims_of_the_study_are_complete() -> None:
    found = study_claims()
    used = {name for claim in found.claims for name in claim.figure}
    assert used == set(found.figures)
    values = [claim.value for claim in found.claims]
    stated = {
        0.961, 0.582, 0.887, 0.503, 0.968, 0.62, 0.907, 0.956, 0.746, 0.29, 1.4, 0.958, 0.92, 0.89,
        0.86, 0.87, 5.2, 7.8, 6.4, 23.4, 15.6, 0.984, 0.947, 0.5,
    }  # fmt: skip
    assert stated < set(values)
    assert values.count(None) == 1
