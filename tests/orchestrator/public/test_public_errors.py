"""Wrong arguments of the public API: its own errors, in words that fit Python and the terminal."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_rows import write_results

import fleetrank
from fleetrank.analysis.stored.selection import Selection

Call = Callable[[Path, Path], object]
"""A call with a good results folder and a folder that can be written."""
PATHS: tuple[object, ...] = (None, 5, b"results", ["results"], "", "a\0b", Path("a\0b"))
SELECTIONS: tuple[object, ...] = ("latency", 5, {"runtime": "onnx"}, [Selection()])
TEXTS: tuple[object, ...] = (None, 5, b"latency", ["latency"])


def _selected(**fields: object) -> Call:
    return lambda results, _: fleetrank.table("latency", results, Selection(**fields))  # type: ignore[arg-type]


def _paths() -> dict[str, Call]:
    """Every function with each wrong path, and with wrong sweeps."""
    calls: dict[str, Call] = {}
    of_paths: dict[str, Callable[[object], object]] = {
        "load": fleetrank.load,
        "table": lambda path: fleetrank.table("latency", path),
        "figure": lambda path: fleetrank.figure("flops", path),
        "predict": lambda path: fleetrank.predict(path, "cpu"),
        "query": lambda path: fleetrank.query(path, "SELECT 1"),
        "report": lambda path: fleetrank.report(path, "page.html"),
    }
    for name, function in of_paths.items():
        for path in (*PATHS, "no/such/folder", __file__):
            calls[f"{name} of {path!r}"] = lambda _r, _o, f=function, p=path: f(p)
    for path in PATHS:
        calls[f"report to {path!r}"] = lambda results, _, p=path: fleetrank.report(results, p)
    calls["report to a folder"] = fleetrank.report
    calls["report below a file"] = lambda results, _: fleetrank.report(results, f"{__file__}/page")
    for sweep in (5, [5], [], "no-such-sweep", [None], {"a": 1}.values()):
        calls[f"sweep {sweep!r}"] = lambda results, _, s=sweep: fleetrank.load(results, sweep=s)
    return calls


def _values() -> dict[str, Call]:
    """Every argument that is not a path, with wrong values."""
    calls: dict[str, Call] = {}
    for text in TEXTS:
        calls[f"table {text!r}"] = lambda results, _, t=text: fleetrank.table(t, results)
        calls[f"figure {text!r}"] = lambda results, _, t=text: fleetrank.figure(t, results)
        calls[f"render {text!r}"] = lambda results, _, t=text: fleetrank.render(t)
        calls[f"device {text!r}"] = lambda results, _, t=text: fleetrank.predict(results, t)
        calls[f"sql {text!r}"] = lambda results, _, t=text: fleetrank.query(results, t)
        calls[f"quantity {text!r}"] = lambda results, _, t=text: fleetrank.predict(
            results, "*", quantity=t
        )
    for like in (5, b"cpu", "no-such-platform"):
        calls[f"like {like!r}"] = lambda results, _, t=like: fleetrank.predict(results, "*", like=t)
    for share in ("much", None, 0, 1.5, float("nan"), [0.9], True):
        calls[f"coverage {share!r}"] = lambda results, _, c=share: fleetrank.predict(
            results, "*", coverage=c
        )
    for limit in ("soon", None, 0, -1, float("nan"), float("inf"), 1e300, [1], True):
        calls[f"timeout_s {limit!r}"] = lambda results, _, t=limit: fleetrank.query(
            results, "SELECT 1", timeout_s=t
        )
    for columns in ("one", None, 0, 3, 1.5, True):
        calls[f"columns {columns!r}"] = lambda results, _, n=columns: fleetrank.figure(
            "flops", results, columns=n
        )
    for most in ("all", None, 0, -1, 1.5, True, 10**30):
        calls[f"max_rows {most!r}"] = lambda results, _, n=most: fleetrank.query(
            results, "SELECT 1", max_rows=n
        )
    return calls


def _selections() -> dict[str, Call]:
    """Wrong selections."""
    calls: dict[str, Call] = {}
    for selection in SELECTIONS:
        calls[f"table with {selection!r}"] = lambda results, _, s=selection: fleetrank.table(
            "latency", results, s
        )
        calls[f"predict with {selection!r}"] = lambda results, _, s=selection: fleetrank.predict(
            results, "*", selection=s
        )
    for name in ("runtime", "source", "target", "family", "precision", "source_tier"):
        calls[f"{name}=5"] = _selected(**{name: 5})
    calls |= {
        "model=5": _selected(model=5),
        "model=[5]": _selected(model=[5]),
        "origins": _selected(origins="measured"),
        "origins=5": _selected(origins=5),
        "where": _selected(where=("backend", "cpu")),
        "where of no column": _selected(where=(("no_such_column", "x"),)),
        "where=5": _selected(where=5),
        "settings": _selected(settings=("k", "memory")),
        "settings=5": _selected(settings=5),
        "part=5": lambda results, _: fleetrank.table("trust", results, part=5),  # type: ignore[arg-type]
        "max_memory_mib": _selected(max_memory_mib="much"),
        "max_memory_mib=-1": _selected(max_memory_mib=-1),
        "seed": _selected(seed="x"),
        "seed=-1": _selected(seed=-1),
        "seed=1.5": _selected(seed=1.5),
        "allow_unlike_batch": _selected(allow_unlike_batch="yes"),
    }  # fmt: skip
    return calls


CALLS = {"paths": _paths(), "values": _values(), "selections": _selections()}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("public"), n_samples=5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", CALLS)
def test_a_wrong_argument_is_an_error_of_fleetrank(
    kind: str, results: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, call in CALLS[kind].items():
        with subtests.test(name):
            with pytest.raises(fleetrank.FleetError) as caught:
                call(results, tmp_path)
            assert caught.value.message
            assert caught.value.remedy
            assert "--" not in str(caught.value)


@pytest.mark.parametrize("kind", [str, pytest.param(Path, marks=pytest.mark.thorough)])
def test_a_path_is_text_or_a_path(kind: type, results: Path, tmp_path: Path) -> None:
    folder = kind(results)
    assert fleetrank.load(folder).collect().height
    assert fleetrank.table("latency", folder).frame.height
    assert fleetrank.query(folder, "SELECT 1 AS one").item() == 1
    assert fleetrank.predict(folder, "*").frame.height
    assert fleetrank.report(folder, kind(tmp_path / "page.html")).size_bytes


def test_a_damaged_part_is_named(results: Path, tmp_path: Path) -> None:
    damaged = write_results(tmp_path)
    for part in damaged.rglob("part-*.parquet"):
        part.write_bytes(part.read_bytes()[:-1000] + bytes(1000))
    with pytest.raises(fleetrank.FleetError, match="part-"):
        fleetrank.query(damaged, "SELECT count(*) FROM measurements WHERE status = 'ok'")
