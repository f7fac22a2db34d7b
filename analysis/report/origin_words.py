"""How the page marks figures of simulated and virtual devices, and names platforms in titles."""

from collections.abc import Iterable, Sequence

import polars as pl

UNREAL = ("simulated", "virtual")
"""Origins that are not real devices."""


def unreal_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of simulated or virtual devices; `origin` may list several origins."""
    return rows.filter(pl.col("origin").str.contains("|".join(UNREAL)))


def kinds_of(origins: Iterable[str | None]) -> str:
    """Which origins that are not real devices occur, as words; empty without any."""
    known = {part for one in origins if one for part in one.split(" | ")}
    return " and ".join(kind for kind in UNREAL if kind in known)


def titled(name: str, origins: Iterable[str | None]) -> str:
    """The name of a device or platform, and after it what it is if it is not a real device."""
    kinds = kinds_of(origins)
    return f"{name} ({kinds})" if kinds else name


def short_names(platforms: Sequence[str]) -> dict[str, str]:
    """Device, runtime and what else is needed to tell the platforms apart."""
    parts = {key: key.split("/") for key in platforms}
    usual = next(iter(parts.values()), [])
    if len({len(one) for one in parts.values()}) > 1:
        return {key: key for key in platforms}
    differs = [any(one[at] != usual[at] for one in parts.values()) for at in range(len(usual))]
    return {
        key: " ".join(part for at, part in enumerate(one) if at < 2 or differs[at])
        for key, one in parts.items()
    }
