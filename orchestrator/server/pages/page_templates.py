"""Templates to responses; every value is escaped."""

from collections.abc import Mapping
from functools import cache, partial
from importlib import resources

import jinja2
from starlette.responses import HTMLResponse

from fleetrank.analysis.report.page import shown
from fleetrank.analysis.tables.values import value_text
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
    environment.filters["value"] = partial(value_text, is_grouped=True)
    return environment


def render(template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Returns a page; the values have the names that the template uses."""
    return HTMLResponse(_environment().get_template(template).render(values), status)


@cache
def asset(name: str) -> str:
    """Returns one of our style sheets or scripts.

    Raises:
        FileNotFoundError: no asset has this name.
    """
    if name == "page.css":
        # The style sheet of the report, so that both look the same.
        folder = resources.files("fleetrank.analysis").joinpath("report/templates")
    else:
        folder = resources.files("fleetrank.orchestrator").joinpath("server/assets")
    return folder.joinpath(name).read_text(encoding="utf-8")
