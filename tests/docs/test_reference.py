"""The reference says what the code is, and the site asks nobody for anything."""

import csv
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import hook
import pytest
from claims_page import claims_page
from cli_page import cli_page
from data_pages import columns_page, tables_page
from file_pages import keys_page
from http_page import http_page
from mkdocs.exceptions import PluginError
from pydantic import TypeAdapter

from fleetrank.analysis.statistics.claims.claim_file import study_claims
from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.models.cards.zoo import CARD_FILE
from fleetrank.orchestrator.cli.main import COMMANDS
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "docs/generate/claims"


def test_every_command_has_its_place_and_its_options() -> None:
    page = cli_page()
    for name in COMMANDS:
        assert f"\n## {name}\n" in page
    assert "\n### sweep run\n" in page
    assert "| `--only PATTERN` | Only cells of this model or platform;" in page
    assert "\n### cluster _cluster\n" not in page


def test_every_column_is_listed_with_its_unit() -> None:
    page = columns_page()
    for column in COLUMNS:
        assert f"| `{column.name}` |" in page
    assert "| `load_ns` | BIGINT | ns | time to read" in page


def test_every_table_is_listed_and_explained() -> None:
    page, explained = tables_page(), (ROOT / "docs/analysis.md").read_text()
    for name, spec in TABLES.items():
        assert f"## {name}\n\n{spec.question}\n" in page
        for part in spec.parts:
            assert f"| `{part}` | " in page
        assert name in explained
    assert "\n- speed_up: time of vanilla at the same T" in page
    assert "\n- Seed `seed`: `draws` resamples." in page
    assert (
        "| `--quantity` | values | what is predicted: latency (default), memory, energy |" in page
    )


def test_the_page_of_claims_has_the_recorded_tables_and_what_none_can_tell() -> None:
    page = claims_page()
    tables, nowhere = page.split("## What no data here can tell")
    recorded = [
        row
        for path in CLAIMS.glob("*.csv")
        for row in csv.DictReader(path.read_text().splitlines())
        if row["figure"]
    ]
    assert len(recorded) > 20
    for row in recorded:
        n_same = sum(one["claim"] == row["claim"] for one in recorded)
        assert tables.count(f"| {row['claim']} | ") == n_same
    open_ones = [one.claim for one in study_claims().claims if f"- {one.claim}\n" in nowhere]
    assert any(one.startswith("CPU to edge") for one in open_ones)
    assert not any(one.startswith("FLOPs name") for one in open_ones)


def test_every_key_of_a_sweep_has_a_meaning() -> None:
    page = keys_page("Sweep file", "", TypeAdapter(SweepSpec))
    policy = [one.name for one in fields(MeasurePolicy)]
    for key in (*SweepSpec.model_fields, *policy):
        assert f"| `{key}` |" in page
    assert (
        "| `threads` | list of whole number from 1 to 4096 | `1` | threads inside one operator |"
        in page
    )
    assert "|  |\n" not in page


def test_a_key_says_whether_it_is_needed() -> None:
    page = keys_page("Model card", "", CARD_FILE)
    assert "| `entry` | text matching `.` | needed |" in page
    assert (
        "| `macs` | whole number from 1 below 4611686018427387904 |  | MACs of one inference"
        in page
    )


def test_an_api_is_described_from_its_document() -> None:
    parameter = {
        "name": "seed", "in": "query", "schema": {"default": 0, "description": "Of | steps."},
    }  # fmt: skip
    get = {"summary": "Rank transfer", "parameters": [parameter], "responses": {"200": {}}}
    page = http_page({"info": {"title": "x"}, "paths": {"/api/transfer": {"get": get}}})
    assert "## `GET /api/transfer`\n\nRank transfer\n" in page
    assert "| `seed` | query | Of \\| steps. Default: `0`. |" in page


@pytest.mark.parametrize(
    "fetched",
    [
        '<script src="https://unpkg.com/x.js">',
        "<img alt='' src='//cdn.example/x.png'>",
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css">',
    ],
)
def test_a_page_that_would_fetch_something_is_refused(fetched) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="x.md"))
    with pytest.raises(PluginError, match="would fetch"):
        hook.on_post_page(f"<p>{fetched}</p>", page, None)
    harmless = '<a href="https://example.org">x</a><script src="assets/x.js"></script>'
    assert hook.on_post_page(harmless, page, None) == harmless


def test_links_out_of_the_site_become_its_pages_or_plain_names() -> None:
    text = "[a]({0}../ARCHITECTURE.md#decisions) [b]({0}../cluster.yaml) [c]({0}notebooks/x.ipynb)"
    for uri, up in (("x.md", ""), ("reference/x.md", "../")):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
        linked = hook.on_page_markdown(text.format(up), page, None, None)
        assert linked == f"[a]({up}architecture.md#decisions) b [c]({up}notebooks/x.md)"


def test_a_notebook_becomes_text_and_code() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {"cell_type": "code", "source": "1 + 1"},
    ]
    assert hook._notebook_page({"cells": cells}) == "# Title\nText.\n\n```python\n1 + 1\n```\n"
