from fleetrank.analysis.stored.cell_values import dropped_attempts


def test_every_attempt_left_out_has_its_reason(make_attempts) -> None:
    frame = make_attempts(
        [
            {"model": "a", "attempt": 0, "status": "failed", "error_kind": "crashed"},
            {"model": "a", "attempt": 1, "latency_p50_ns": 1.0},
            {"model": "b", "status": "failed", "error_message": "no memory"},
            {"model": "c", "sweep_id": "s0", "latency_p50_ns": 1.0, "started_utc": -1},
            {"model": "c", "latency_p50_ns": 1.0},
            {"model": "d"},
            {"model": "e", "latency_p50_ns": 1.0, "excluded": "by hand"},
            {"model": "e", "repeat": 1, "status": "failed", "excluded": "by hand"},
        ]
    )
    found = dropped_attempts(frame).select("model", "sweep_id", "attempt", "reason", "detail")
    assert found.rows() == [
        ("a", "s1", 0, "retried", None),
        ("b", "s1", 0, "failed", "no memory"),
        ("c", "s0", 0, "superseded", None),
        ("d", "s1", 0, "no latency", None),
        ("e", "s1", 0, "excluded", "by hand"),
        ("e", "s1", 0, "excluded", "by hand"),
    ]


def test_a_flag_drops_nothing(make_attempts) -> None:
    frame = make_attempts([{"latency_p50_ns": 1.0, "flags": ["spread", "niced"]}])
    assert dropped_attempts(frame).is_empty()
