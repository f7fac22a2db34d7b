"""Names with `*`, as all selectors accept them."""

import polars as pl


def matches(column: str, pattern: str) -> pl.Expr:
    """Whether a text matches the pattern, in which `*` matches any text."""
    if "*" not in pattern:
        return pl.col(column) == pattern
    return pl.col(column).str.contains(regex_of(pattern))


def fits_platform(pattern: str | None, tier: str | None) -> pl.Expr:
    """Whether a platform's key or device matches the pattern, and its tier equals the tier."""
    fits = pl.lit(value=True)
    if pattern is not None:
        fits = fits & (matches("platform_key", pattern) | matches("device", pattern))
    if tier is not None:
        fits = fits & (pl.col("tier") == tier)
    return fits


def regex_of(pattern: str) -> str:
    """The pattern as a regular expression; Polars and DuckDB both match it in linear time."""
    parts = (pl.escape_regex(part) for part in pattern.split("*"))
    return f"(?s)^{'.*'.join(parts)}$"
