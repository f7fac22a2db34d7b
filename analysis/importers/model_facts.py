"""Fills what a source and our cards do not state about models, from a user's file of facts."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.facts_file import ModelFacts
from fleetrank.analysis.importers.release import Row
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import count_of, did_you_mean

_GROUPS = (
    ("flops", "macs", "flops_method", "flops_source"),
    ("parameters",),
    ("accuracy_top1", "accuracy_source"),
    ("family",),
    ("has_attention",),
)
"""Columns of the table that are filled together, where a row lacks the first of them."""
_SAME = 0.01
"""Published counts are rounded: figures that differ by less than this share are not in conflict."""


def refuse_unknown_models(facts: ModelFacts, models: Iterable[tuple[str, str]]) -> None:
    """Compares the models of a file with those that are imported, pairs of source and stored name.

    Raises:
        AnalysisError: a line names no imported model, or two lines name the same one.
    """
    stored = sorted(set(models))
    used = {_line_of(facts, *one) for one in stored}
    names = [name for source, model in stored for name in (model, _own_name(source, model))]
    for model, number in facts.lines.items():
        if model not in used:
            raise AnalysisError(
                f"{facts.name}, line {number}: the import has no model '{shortened(model)}'",
                f"{did_you_mean(model, names)}use the stored name, or its part after the "
                "colon; after an import without facts `fleetrank report show cells` lists them",
            )


def fill(
    facts: ModelFacts, source: str, rows: Sequence[Row]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows with the facts that they lack, and notes for readers of any figure from them.

    A fact that the source or our card states is kept, also if the file states another one.
    """
    filled = []
    without: dict[str, None] = {}
    kept: dict[str, str] = {}
    for row in rows:
        model = str(row["model"])
        name = _line_of(facts, source, model)
        if name is None:
            without[model] = None
            filled.append(row)
            continue
        given = facts.columns[name]
        for text in _conflicts(row, given):
            kept.setdefault(model, text)
        filled.append(_filled(row, given, facts, facts.lines[name]))
    return tuple(filled), tuple(_notes(facts.name, tuple(without), kept))


def _filled(row: Row, given: Row, facts: ModelFacts, number: int) -> Row:
    lacking = [
        group for group in _GROUPS if row.get(group[0]) is None and given.get(group[0]) is not None
    ]
    if not lacking:
        return row
    listed = row.get("derived")
    names = ", ".join(group[0] for group in lacking)
    return row | {
        **{name: given[name] for group in lacking for name in group},
        "derived": [
            *(listed if isinstance(listed, list) else []),
            f"{names}: from {facts.name}, line {number}",
        ],
        "source_ref": f"{row['source_ref']}; {facts.reference}",
    }


def _conflicts(row: Row, given: Row) -> Iterator[str]:
    for name, *_ in _GROUPS:
        stated, other = row.get(name), given.get(name)
        if stated is None or other is None or stated == other:
            continue
        both = isinstance(stated, int | float) and isinstance(other, int | float)
        if both and math.isclose(float(str(stated)), float(str(other)), rel_tol=_SAME):
            continue
        yield f"{name} {stated}, not {other}"


def _notes(name: str, without: Sequence[str], kept: Mapping[str, str]) -> Iterator[str]:
    if without:
        yield (
            f"{name} has no line for {count_of(len(without), 'model')} of the import; the first is "
            f"{without[0]}."
        )
    for model, text in list(kept.items())[:1]:
        yield (
            f"{name} differs from the source or from our card for {count_of(len(kept), 'model')}; "
            f"their facts are kept. The first is {model}: {text}."
        )


def _line_of(facts: ModelFacts, source: str, model: str) -> str | None:
    """The name in the file that means a stored model; `None` without a line."""
    names = [name for name in (model, _own_name(source, model)) if name in facts.lines]
    if len(set(names)) > 1:
        first, second = (facts.lines[name] for name in names)
        raise AnalysisError(
            f"{facts.name}, lines {first} and {second} both name {model}", "remove one of them"
        )
    return names[0] if names else None


def _own_name(source: str, model: str) -> str:
    """A model's name in its source."""
    return model.removeprefix(f"{source}:")
