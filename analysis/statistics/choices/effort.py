"""How much must be measured: which models of a new device, and how many devices."""

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.next_models import next_models_as_table
from fleetrank.analysis.statistics.choices.savings import savings_as_table
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import OVER


def effort_table(session: Session) -> Table:
    """What to measure, and the error that is left: models of a new device, or devices."""
    if OVER.chosen(session.selection) == "devices":
        return savings_as_table(session)
    return next_models_as_table(session)
