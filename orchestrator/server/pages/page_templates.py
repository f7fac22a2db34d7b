"""Templates to responses; every value is escaped."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

import jinja2
from starlette.responses import HTMLResponse

from fleetrank.analysis.report.page import shown
from fleetrank.orchestrator.progress.wording import duration


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fleetrank.orchestrator", "server/templates"),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    return environment


def render(template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """A page; the values are named as the template names them."""
    return HTMLResponse(_environment().get_template(template).render(values), status)


@cache
def asset(name: str) -> str:
    """A style sheet or script of ours.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    if name == "page.css":
        # The report's own: one look for both.
        folder = resources.files("fleetrank.analysis").joinpath("report/templates")
    else:
        folder = resources.files("fleetrank.orchestrator").joinpath("server/assets")
    return folder.joinpath(name).read_text(encoding="utf-8")
