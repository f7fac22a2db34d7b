"""MkDocs hook: makes the reference from the code, and keeps the site free of the network."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import claims_page
import cli_page
import data_pages
import file_pages
import http_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import TypeAdapter

from fleetrank.models.cards.zoo import CARD_FILE
from fleetrank.orchestrator.server.access import access_for
from fleetrank.orchestrator.server.app import create_app
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

ROOT = Path(__file__).parents[2]
_FROM_ROOT = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md",
              "CHANGELOG.md": "changes.md"}  # fmt: skip
"""Pages that lie at the top of the repository, where people look for them."""
_FETCHED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s>]+"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from code."""
    for uri, text in _made_pages():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to notebooks and files of the repository become links of the site, or plain names."""
    del config, files
    to_docs = "../" * page.file.src_uri.count("/")
    link_out = rf"\[([^\]]+)\]\({re.escape(to_docs)}\.\./([^.)#][^)#]*)(#[^)]*)?\)"
    return re.sub(link_out, partial(_inside, to_docs), markdown.replace(".ipynb)", ".md)"))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuses a page that would ask another machine for anything.

    Raises:
        PluginError: it would; names page and address.
    """
    del config
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch {found.group()}")
    return output


def _made_pages() -> Iterator[tuple[str, str]]:
    yield "reference/cli.md", cli_page.cli_page()
    yield "reference/columns.md", data_pages.columns_page()
    yield "reference/tables.md", data_pages.tables_page()
    yield "claims.md", claims_page.claims_page()
    for uri, title, text, model in (
        (
            "sweep-file",
            "Sweep file",
            "Keys of `sweeps/NAME.yaml`. A list may be a single value.",
            TypeAdapter(SweepSpec),
        ),
        (
            "device-file",
            "Device file",
            "Keys of `devices/NAME.yaml`, written by `fleetrank devices add`.",
            TypeAdapter(DeviceFile),
        ),
        (
            "model-card",
            "Model card",
            "Keys of `cards/NAME.toml`, for a model of your own.",
            CARD_FILE,
        ),
    ):
        yield f"reference/{uri}.md", file_pages.keys_page(title, text, model)
    yield "reference/http.md", http_page.http_page(_openapi())
    for name, uri in _FROM_ROOT.items():
        # Their links start at the top; those into docs/ start here.
        yield uri, (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        yield (
            f"notebooks/{notebook.stem}.md",
            _notebook_page(json.loads(notebook.read_text("utf-8"))),
        )


def _openapi() -> Mapping[str, object]:
    document: Mapping[str, object] = create_app(
        ROOT / "results", access_for("127.0.0.1", 0)
    ).openapi()
    return document


def _notebook_page(notebook: Mapping[str, list[Mapping[str, object]]]) -> str:
    """Text and code of a notebook; its outputs are made when it is run."""
    parts = []
    for cell in notebook["cells"]:
        source = cell["source"]
        text = "".join(source) if isinstance(source, list) else str(source)
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _inside(to_docs: str, link: re.Match[str]) -> str:
    text, target, place = link.groups()
    return f"[{text}]({to_docs}{_FROM_ROOT[target]}{place or ''})" if target in _FROM_ROOT else text
