"""One pair of platforms in full: the reader selects source and target."""

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section

_FEWEST_PLATFORMS = 2


def pair_section(evidence: Evidence, tables: PageTables) -> Section:
    """The script shows figures that the page already has, so it adds no data for each pair."""
    del tables
    has_pairs = len(evidence.shown.platforms) >= _FEWEST_PLATFORMS
    return Section(
        id="pair",
        short="One pair",
        title="One source and one target in full",
        lead=(
            "Select the platform that you measure on and the platform that you deploy to. The "
            "ceiling is the highest rho that the noise of both platforms allows."
            if has_pairs
            else "The results have one platform, so it has no pair.",
        ),
        charts="pair" if has_pairs else "",
        layout="pair",
        overall=(
            "The figures use all models that both platforms share. Filtering only hides points."
        ),
        is_by_family=has_pairs,
    )
