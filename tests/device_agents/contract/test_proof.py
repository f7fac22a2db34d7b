"""What the pairs of a proof say, and which of them are findings."""

from dataclasses import replace

import pytest
from wording import has

from fleetrank.device_agents.contract.measurement import (
    Conditions,
    Measurement,
    ToolSummary,
    WorkerFacts,
)
from fleetrank.device_agents.contract.proof import Proof, figure_ns, proof_line, proof_of
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.vocabulary import Origin, Statistic, Status

SEEN = Measurement(
    task_id="t",
    status=Status.OK,
    origin=Origin.MEASURED,
    samples_ns=(4_150_000,),
    backend_nodes=65,
    graph_nodes=65,
    worker=WorkerFacts(affinity=(4, 5, 6, 7)),
    conditions_after=Conditions(clock_cap_mhz=2000.0, battery_percent=80.0),
)
EQUAL = OutputComparison(max_relative_error=1e-6, is_equal=True)
PAIRS = [(4_000_000, 4_120_000), (4_100_000, 4_100_000), (4_200_000, 4_158_000)]


def prove(
    pairs: list[tuple[int, int]] = PAIRS,
    seen: Measurement = SEEN,
    outputs: OutputComparison | str = EQUAL,
) -> Proof:
    return proof_of(pairs, seen, (4, 5, 6, 7), outputs)


def test_the_line_says_what_is_known_and_what_is_not() -> None:
    proof = prove()
    assert (proof.ratio, proof.low, proof.high, proof.n_pairs) == (1.0, 0.99, 1.03, 3)
    assert proof.findings == ()
    line = proof_line(proof)
    assert has(
        line, "bare 4.1 ms", "fleetrank 4.12 ms", "ratio 1.00 (0.99 to 1.03", "3 pairs", "75 %"
    )
    assert has(line, "to 1e-6", "placement 65 of 65", "cores 4-7 as asked", "clock cap read")
    assert has(line, "battery read", "temperature not read")
    bare = replace(SEEN, backend_nodes=None, worker=None, conditions_after=None)
    line = proof_line(prove(seen=bare, outputs="the device gives none"))
    assert has(line, "not compared (the device gives none)", "placement not known")
    assert has(
        line,
        "cores not read, 4-7 asked",
        "clock cap not read",
        "battery not read; temperature not read",
    )


def test_a_range_of_five_pairs_misses_the_median_once_in_sixteen() -> None:
    assert has(proof_line(prove([(1, 1)] * 5)), "the range of 5 pairs, a 93.75 % interval")


@pytest.mark.parametrize(
    ("pairs", "seen", "outputs", "finding"),
    [
        ([(8, 4), (9, 4), (8, 5)], SEEN, EQUAL, "ratio 0.50"),
        ([(100, 94), (100, 93), (100, 101)], SEEN, EQUAL, "vary too much to tell"),
        ([(100, 100), (100, 60), (100, 101)], SEEN, EQUAL, "vary too much to tell"),
        (PAIRS, SEEN, replace(EQUAL, is_equal=False, reason="NaN"), "outputs differ"),
        (PAIRS, replace(SEEN, worker=WorkerFacts(affinity=(0,))), EQUAL, "on cores 0, not 4-7"),
    ],
)
def test_what_is_wrong_is_a_finding(pairs, seen, outputs, finding: str) -> None:
    (found,) = prove(pairs, seen, outputs).findings
    assert finding in found


def test_a_tool_is_compared_by_its_mean_which_every_version_prints() -> None:
    summary = ToolSummary(latency_ns=4, statistic=Statistic.MEDIAN, mean_ns=5)
    assert figure_ns(replace(SEEN, samples_ns=(), summary=summary)) == 5
    assert figure_ns(SEEN) == 4_150_000
