"""The table lists closed sets of words that other packages own."""

from enum import StrEnum

import pytest

from fleetrank.analysis.stored import columns
from fleetrank.device_agents.contract import vocabulary
from fleetrank.models.cards import card as types


@pytest.mark.parametrize(
    ("values", "owner"),
    [
        (columns.RUNTIMES, vocabulary.Runtime),
        (columns.PRECISIONS, vocabulary.Precision),
        (columns.MODES, vocabulary.Mode),
        (columns.TIERS, vocabulary.Tier),
        (columns.ORIGINS, vocabulary.Origin),
        (columns.SAMPLE_KINDS, vocabulary.SampleKind),
        (columns.STATUSES, vocabulary.Status),
        (columns.MEMORY_METRICS, vocabulary.MemoryMetric),
        (columns.ERROR_KINDS, vocabulary.ErrorKind),
        (columns.FLAGS, vocabulary.Flag),
        (columns.ENERGY_METHODS, vocabulary.EnergyMethod),
        (columns.FAMILIES, types.Family),
        (columns.FLOPS_METHODS, types.FlopsMethod),
        (columns.WEIGHTS_KINDS, types.WeightsKind),
        (columns.FORMATS, types.Format),
    ],
)
def test_the_tables_words_are_their_owners(values: tuple[str, ...], owner: type[StrEnum]) -> None:
    assert values == tuple(owner)


def test_every_closed_column_is_held_against_an_owner() -> None:
    held = {id(value) for name, value in vars(columns).items() if name.isupper()}
    closed = [column for column in columns.COLUMNS if column.values is not None]
    assert len(closed) == 15
    assert all(id(column.values) in held for column in closed)


def test_the_formats_run_in_runtimes_that_exist() -> None:
    assert set(types.RUNTIME_OF_FORMAT.values()) == set(vocabulary.Runtime)
    assert set(types.RUNTIME_OF_FORMAT) == set(types.Format)
