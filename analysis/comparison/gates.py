"""What a comparison must meet, and its result as a JUnit file for a build server."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from xml.etree import ElementTree as ET

from fleetrank.analysis.arrays.two_samples import Limits, Verdict
from fleetrank.analysis.comparison.comparison import ComparedCell, Comparison, comparison_sentence
from fleetrank.analysis.comparison.verdict import percent
from fleetrank.analysis.stored.exclusions import cell_pattern
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.wording import count_of

_CLASS = "fleetrank.compare"
_NO_TEST = "a cell could be tested"
"""The extra case of a comparison without a tested cell: the gate fails, so the file must too."""
_NOT_XML = re.compile("[\ufffe\uffff]")
"""The two characters that XML forbids and `visible_line` keeps."""


class Requirement(StrEnum):
    """Something that every cell must meet, also a cell that could not be compared."""

    SAME = "same"
    """It is shown to be the same within the margin."""
    NOT_SLOWER = "not slower"
    """It is shown not to be slower by the margin or more."""
    POWER = "power"
    """A change as large as the margin, of this cell alone, is found with a probability of 80 %."""


_WORDS = {
    Requirement.SAME: "not shown to be the same within {margin}",
    Requirement.NOT_SLOWER: "not shown to be less than {margin} slower",
    Requirement.POWER: "too noisy or with too few repeats to find a change of {margin}",
}


def unmet_requirements(found: Comparison, wanted: Sequence[Requirement]) -> tuple[str, ...]:
    """A text for each requirement that some cell does not meet, with the number of such cells.

    All cells must meet it, so a wrong "all are the same" has a probability of at most alpha
    without any adjustment over the cells (Berger 1982).
    """
    limits, margin = found.limits, percent(found.limits.margin)
    texts = []
    for requirement in wanted:
        n = sum(not _is_met(cell, requirement, limits) for cell in found.cells)
        if n:
            words = _WORDS[requirement].format(margin=margin)
            texts.append(f"{count_of(n, 'cell')} {words}")
    return tuple(texts)


def unmet_by(cell: ComparedCell, wanted: Sequence[Requirement], limits: Limits) -> tuple[str, ...]:
    """A text for each requirement that this cell does not meet."""
    margin = percent(limits.margin)
    return tuple(
        _WORDS[one].format(margin=margin) for one in wanted if not _is_met(cell, one, limits)
    )


def _is_met(cell: ComparedCell, requirement: Requirement, limits: Limits) -> bool:
    if requirement is Requirement.SAME:
        return cell.verdict is Verdict.SAME
    if requirement is Requirement.NOT_SLOWER:
        return cell.p_not_slower is not None and 2 * cell.p_not_slower <= limits.alpha
    ratio = cell.detectable_ratio
    return ratio is not None and ratio <= 1 + limits.margin


def junit_xml(found: Comparison, required: Sequence[Requirement]) -> str:
    """One test case for each cell; a case fails exactly if the cell makes the gate fail.

    A cell that was not tested is skipped unless a requirement makes it fail. The file has a failure
    exactly if `report compare` ends with a code other than 0.

    Source: junit-10.xsd of the xUnit plugin of Jenkins.
    """
    suite = ET.Element("testsuite", name=_text(f"{found.sweep_b} against {found.sweep_a}"))
    properties = ET.SubElement(suite, "properties")
    for name, value in _facts(found, required):
        ET.SubElement(properties, "property", name=name, value=_text(value))
    tally = Counter(_add_case(suite, found, cell, required) for cell in found.cells)
    if found.n_tested == 0:
        case = ET.SubElement(suite, "testcase", classname=_CLASS, name=_NO_TEST)
        ET.SubElement(case, "failure", type="untested", message="no cell could be tested")
        tally["failure"] += 1
    ET.SubElement(suite, "system-out").text = _text(comparison_sentence(found))
    suite.attrib |= {
        "tests": str(tally.total()),
        "failures": str(tally["failure"]),
        "errors": "0",
        "skipped": str(tally["skipped"]),
    }
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    body = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _facts(found: Comparison, required: Sequence[Requirement]) -> Iterator[tuple[str, str]]:
    yield "sweep_a", found.sweep_a
    yield "sweep_b", found.sweep_b
    yield "margin", f"{found.limits.margin:g}"
    yield "alpha", f"{found.limits.alpha:g}"
    yield "required", ", ".join(required)


def _add_case(
    suite: ET.Element, found: Comparison, cell: ComparedCell, required: Sequence[Requirement]
) -> str:
    """Adds one case; returns the name of its outcome."""
    name = _text(cell_pattern(cell.model, cell.platform_key, cell.workload))
    case = ET.SubElement(suite, "testcase", classname=_CLASS, name=name)
    text = _text(_sentence(cell))
    reasons = unmet_by(cell, required, found.limits)
    if cell.verdict is Verdict.SLOWER:
        reasons = (Verdict.SLOWER.value, *reasons)
    if reasons:
        message = _text("; ".join(reasons))
        ET.SubElement(case, "failure", type=cell.verdict.value, message=message).text = text
        return "failure"
    if cell.p_value is None:
        ET.SubElement(case, "skipped", message=text)
        return "skipped"
    ET.SubElement(case, "system-out").text = text
    return "passed"


def _sentence(cell: ComparedCell) -> str:
    words = [cell.verdict.value.replace("_", "-")]
    if cell.ratio is not None:
        words.append(f"ratio {cell.ratio:.4g}")
    if cell.ratio_low is not None and cell.ratio_high is not None:
        words.append(f"from {cell.ratio_low:.4g} to {cell.ratio_high:.4g}")
    return ", ".join([*words, *([cell.reason] if cell.reason else [])])


def _text(text: str) -> str:
    return _NOT_XML.sub("?", visible_line(text))
