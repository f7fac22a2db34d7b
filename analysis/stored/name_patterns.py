"""Which models, platforms and cells a name or a pattern with `*` fits."""

import re
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.chosen_workload import WORKLOAD, known_workload
from fleetrank.foundation.vocabulary import Precision

ANY_PRECISION = "any"
"""Selects every precision, each of a model as a separate model, such as `resnet18:int8`."""
PRECISION_WORD = rf"({'|'.join(Precision)}|w\d+a\d+\w*)"
"""A precision in the name of a model; the last form is of published files."""
_MAX_EXPRESSION = 2000
"""Characters of patterns in one regular expression; Polars refuses one that compiles to 10 MiB."""


def matches(column: str | pl.Expr, *patterns: str) -> pl.Expr:
    """Whether a text matches one of the patterns, in which `*` matches any text."""
    text = pl.col(column) if isinstance(column, str) else column
    names = [pattern for pattern in patterns if "*" not in pattern]
    found = text.is_in(names)
    for expression in _expressions([pattern for pattern in patterns if "*" in pattern]):
        found = found | text.str.contains(expression)
    return found


_PRECISE = re.compile(rf"(?<=.):{PRECISION_WORD}(?=$| \()")
"""Sizes or weights may follow in the name of a model."""


def split_precision(name: str) -> tuple[str, str | None]:
    """The name of a model without its precision, and the precision; `None` without one."""
    found = _PRECISE.search(name)
    return (_PRECISE.sub("", name), found[1]) if found else (name, None)


def has_precision(name: str, models: Iterable[str]) -> bool:
    """Whether a name ends with a precision, and no model was published under a name that does."""
    is_published = any(f":{one}".endswith(f":{name}") for one in models)
    return split_precision(name)[1] is not None and not is_published


def place_of(name: str, models: Sequence[str], *, is_precise: bool) -> int | None:
    """The model that a name stands for; `None` without one.

    It has exactly this name, or is the only one with it before its precision; or it is the only one
    with a start before it: `n3` is `lab:n3`.

    Raises:
        AnalysisError: the name stands for several.
    """
    plain = [split_precision(one)[0] if is_precise else one for one in models]
    for known, start in ((models, ""), (plain, ""), (models, ":"), (plain, ":")):
        end = f"{start}{name}"
        fits = [at for at, one in enumerate(known) if one == name or (start and one.endswith(end))]
        if len(fits) > 1:
            what = "is the end of several models" if start else "was measured in several precisions"
            alike = ", ".join(sorted(models[at] for at in fits))
            raise AnalysisError(f"'{name}' {what}", f"name one: {alike}")
        if fits:
            return fits[0]
    return None


def fits_model(*patterns: str) -> pl.Expr:
    """Whether a model's name fits one of the patterns, or its name before the precision.

    Of rows that are named by precision only: another model may be named `net:fp16` as published.
    """
    plain = pl.col("model").str.replace(f":{PRECISION_WORD}$", "")
    is_named = pl.col("precision").eq_missing(ANY_PRECISION)
    return matches("model", *patterns) | (is_named & matches(plain, *patterns))


def _expressions(patterns: Sequence[str]) -> Iterator[str]:
    """The patterns as a few regular expressions of limited length."""
    some: list[str] = []
    for pattern in patterns:
        if some and sum(map(len, some)) + len(pattern) > _MAX_EXPRESSION:
            yield "|".join(map(regex_of, some))
            some = []
        some.append(pattern)
    if some:
        yield "|".join(map(regex_of, some))


_SAID = re.compile(r"batch (?P<b>\d+)|(?P<t>\d+) threads?")


def _is_named(pattern: str) -> pl.Expr:
    names = ("platform_key", "device", "device_model")
    named = pl.any_horizontal(matches(name, pattern) for name in names)
    return named.fill_null(value=False)


def _has_part(text: str) -> pl.Expr:
    """Whether a platform's key has a part, by the words of a label: `2 threads` is `t2` there."""
    said = _SAID.fullmatch(text)
    part = f"{said.lastgroup}{said[said.lastgroup or 0]}" if said else text
    return pl.col("platform_key").str.contains(f"/{part}/", literal=True)


def fits_platform(pattern: str | None, tier: str | None) -> pl.Expr:
    """Whether a platform's key, device, device model or label matches the pattern.

    A label is as tables show it, such as `Samsung Galaxy S24, onnx, 2 threads`. The tier is equal.
    """
    fits = pl.lit(value=True)
    if pattern is not None:
        first, *parts = pattern.split(", ")
        is_label = pl.all_horizontal(_is_named(first) | _has_part(first), *map(_has_part, parts))
        fits = fits & (_is_named(pattern) | (is_label if parts else pl.lit(value=False)))
    if tier is not None:
        fits = fits & (pl.col("tier") == tier)
    return fits


def regex_of(pattern: str) -> str:
    """The pattern as a regular expression; Polars and DuckDB both match it in linear time."""
    parts = (pl.escape_regex(part) for part in pattern.split("*"))
    return f"(?s)^{'.*'.join(parts)}$"


CELL_WORD = " on "
"""Between model and platform in a pattern; a platform key has no space."""


def fits(pattern: str) -> pl.Expr:
    """Whether model, workload or platform of a row match the pattern, or all of `M W on P`."""
    return pl.any_horizontal(
        pl.all_horizontal(_matches(column, part) for column, part in meaning.items())
        for meaning in meanings(pattern)
    )


def _matches(column: str, pattern: str) -> pl.Expr:
    return matches(known_workload() if column == WORKLOAD else column, pattern)


def meanings(pattern: str) -> tuple[dict[str, str], ...]:
    """What a pattern can mean: columns that must match together; one of the meanings is enough."""
    model, word, platform = pattern.rpartition(CELL_WORD)
    cells = [of_model | {"platform_key": platform} for of_model in _models_of(model) if word]
    return (*_models_of(pattern), {WORKLOAD: pattern}, {"platform_key": pattern}, *cells)


def _models_of(pattern: str) -> tuple[dict[str, str], ...]:
    """A model, and `MODEL WORKLOAD` where there are two words."""
    model, word, workload = pattern.rpartition(" ")
    return ({"model": pattern}, *([{"model": model, WORKLOAD: workload}] if word else []))
