"""Kinds, runtimes and importers of other packages: used like ours, and answered for by name."""

import json
import pickle  # noqa: TID251 - messages of Ray are pickled
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from outside_packages import Site, made_site

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.importer import Importer, read_releases
from fleetrank.analysis.importers.release import Release
from fleetrank.device_agents.contract.kind import DeviceKind
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.runtime import OutsideRunner, Runner
from fleetrank.device_agents.contract.task import Execution, MeasureTask, RepeatLimits
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.hosts.host import Host
from fleetrank.device_agents.hosts.messages import DeviceSpec, DeviceTask, PollRequest
from fleetrank.device_agents.registry import KINDS, all_kinds, create_agent, load_kind
from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.entry_points import EntryPointError
from fleetrank.foundation.formats import (
    FormatReader,
    format_of,
    known_runtime,
    outside_format,
    runtime_of,
)
from fleetrank.foundation.vocabulary import ErrorKind, Format, Runtime
from fleetrank.models.number_types import read_types
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.doctor import Severity
from fleetrank.orchestrator.doctor_packages import check_packages
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace
from fleetrank.orchestrator.workspace.yaml_file import parse_content

RECIPES = Path(__file__).parents[3] / "docs/recipes"
RUNTIMES = """
[fleetrank.runtimes]
perceptron = fleetrank_perceptron:PerceptronRunner
"""
KIND = """
from fleetrank.device_agents.contract.kind import (
    DeviceKind, RegistrationData, RegistrationRequest, SeenDevice, Traits
)
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.simulated import SimulatedAgent
from fleetrank.foundation.vocabulary import Origin

class Lamp:
    identity, model, clusters, facts = "lamp-7", "Lamp 7", (), {"watts": 7}
    def __init__(self, address):
        self._address = address
    def options(self, before):
        return {**before, "address": self._address}
    def canary(self, options):
        return None

class LampRegistrar:
    programs, address_in, least_shares = (), "address", {}
    def canary_tolerance(self, options):
        return 0.1
    def meet(self, request, say):
        if request.address == "dark":
            raise PermanentError("the lamp is off", "switch it on")
        return Lamp(request.address)
    def identity_of(self, options):
        return "lamp-7"
    def is_same(self, identity, other):
        return identity == other
    def clean(self, options):
        pass

class LampDiscoverer:
    nothing_seen = "switch a lamp on"
    def discover(self, known):
        return [SeenDevice(address="desk 1", state="on", transport="air", model="L", remedy=None)]
    def is_at(self, options, seen):
        return options.get("address") == seen.address

class LampAgent(SimulatedAgent):
    def __init__(self, options):
        super().__init__({})

KIND = DeviceKind(
    create_agent=LampAgent,
    traits_of=lambda options: Traits(origin=Origin.SIMULATED),
    default_backend=lambda runtime: "bulb",
    registrar=lambda options: LampRegistrar(),
    discoverer=LampDiscoverer,
)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(RECIPES / "runtime")
    monkeypatch.syspath_prepend(RECIPES / "importer")
    yield from made_site(folder, monkeypatch)


@pytest.fixture
def perceptron(site: Site, tmp_path: Path) -> Path:
    """A file of the runtime that is installed from the recipe."""
    site.install("fleetrank-numpy", RUNTIMES)
    path = tmp_path / "net.npz"
    ones = np.ones((4, 3), np.float32)
    np.savez(path, weight_0=ones, bias_0=ones[0], weight_1=ones.T, bias_1=ones[:, 0])
    return path


@pytest.fixture
def lamps(site: Site, tmp_path: Path) -> Path:
    """A workspace beside which the kind `lamp` is installed."""
    site.install("lamp-kind", "[fleetrank.kinds]\nlamp = lamp_kind:KIND\n", KIND)
    return Workspace.init(tmp_path / "ws").root


def test_words_of_packages_are_words_in_every_process() -> None:
    word = Runtime("perceptron")
    assert word is Runtime("perceptron")
    assert (word, str(word), f"{word}") == ("perceptron",) * 3
    assert pickle.loads(pickle.dumps(word)) is word
    execution = Execution(runtime=word, backend="numpy")
    assert from_json(Execution, to_json(execution)) == execution
    assert word not in list(Runtime)
    assert Format("npz") is Format("npz")
    for bad in ("", "A", "a b", "../a", "a" * 31, "1a", 3):
        with pytest.raises(ValueError, match="not a valid Runtime"):
            Runtime(bad)


def test_a_runtime_of_a_package_has_its_format(perceptron: Path) -> None:
    runtime = known_runtime("perceptron")
    assert format_of(runtime) == "npz"
    assert runtime_of(Format("npz")) is runtime
    assert outside_format(".npz") == "npz"
    assert outside_format(".xyz") is None
    found = read_types(perceptron, Format("npz"))
    assert found is not None
    assert (found.precision, found.parameters) == ("fp32", 31)
    model = RUNNERS.load("perceptron")().load(
        str(perceptron), Execution(runtime=runtime, backend="numpy", batch=2)
    )
    model.set_inputs([np.ones((2, 4), np.float32)])
    model.run()
    assert model.outputs()[0].tolist() == [[16.0] * 4] * 2


def test_a_misspelt_runtime_is_answered_with_those_of_packages(
    perceptron: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"name": "a", "models": "resnet18", "runtimes": ["perceptron", "perceptrom"]}
    with pytest.raises(UsageError, match="did you mean 'perceptron'"):
        parse_content("a.yaml", SweepSpec, content)
    content["runtimes"] = ["perceptron"]
    assert parse_content("a.yaml", SweepSpec, content).runtimes == (Runtime("perceptron"),)
    for words in (["run", str(perceptron)], ["models", "export", "resnet18"]):
        assert run([*words, "--runtime", "perceptrom"]) == 2
        assert "did you mean 'perceptron'" in capsys.readouterr().err


CLASS = """
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.runtime import Library
class Runner:
    format = "npz"
    capability = Capability(backends=("numpy",))
    library = Library(distribution="numpy", module="numpy")
    def version(self): return "1"
    def admit(self, path): return path
    def load(self, path, execution): raise ValueError
    def describe(self, path): return 3
"""
LIES = {
    "no class": ("Runner = 3", "int, not a class"),
    "no format": ("del Runner.format", "format is None"),
    "a path as format": ("Runner.format = '../x'", "1 to 8 small letters"),
    "no reader": ("del Runner.describe", "no method describe"),
    "no method": ("del Runner.load", "no method load"),
    "no capability": ("Runner.capability = None", "not a `Capability`"),
    "no library": ("Runner.library = 'numpy'", "not a `Library`"),
}


@pytest.mark.parametrize(("change", "said"), LIES.values(), ids=LIES)
def test_a_runtime_that_breaks_the_contract_is_named(site: Site, change: str, said: str) -> None:
    site.install("odd-one", "[fleetrank.runtimes]\nodd = odd_one:Runner\n", f"{CLASS}\n{change}\n")
    site.install("fleetrank-numpy", RUNTIMES)
    with pytest.raises(EntryPointError) as caught:
        RUNNERS.load("odd")
    assert said in caught.value.message
    assert "odd-one 1.2" in caught.value.message
    assert runtime_of(Format("npz")) == "perceptron"
    found = {one.check: one for one in check_packages()}
    assert found["runtime odd"].level is Severity.WARNING
    assert found["runtime perceptron"].message == "of package fleetrank-numpy 1.2"


def test_a_host_without_the_package_says_so() -> None:
    execution = Execution(runtime=Runtime("perceptron"), backend="numpy")
    assert create_agent("cpu", {}).why_unsupported(execution) == "no runtime 'perceptron'"


def test_a_lie_about_a_file_is_an_unreadable_file(site: Site, tmp_path: Path) -> None:
    site.install("odd-one", "[fleetrank.runtimes]\nodd = odd_one:Runner\n", CLASS)
    path = tmp_path / "a.npz"
    path.write_bytes(b"x")
    assert read_types(path, Format("npz")) is None


def test_a_device_of_a_package_is_registered_by_its_address(
    lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*words: str) -> str:
        capsys.readouterr()
        code = run([*words, "--workspace", str(lamps)])
        out, err = capsys.readouterr()
        return f"{code} {out}{err}"

    row = json.loads(shown("devices", "list", "--found", "--json")[2:])[-1]
    assert row["what_to_do"] == "fleetrank devices add --kind lamp --address 'desk 1'"
    assert "lamp-7.yaml" in shown("devices", "add", "--kind", "lamp", "--address", "desk 1")
    assert "registered as lamp-7" in shown("devices", "list", "--found", "--json")
    assert "has not changed" in shown("devices", "check", "lamp-7")
    failed = shown("devices", "add", "--kind", "lamp", "--address", "dark")
    assert failed.startswith("4 ")
    assert "the lamp is off" in failed
    assert "--kind" in shown("devices", "add", "--address", "desk 1")


KIND_LIES = {
    "traits_of": ("traits_of=lambda options: None", "load_kind('lamp').traits_of({})", "NoneType"),
    "an agent without methods": (
        "create_agent=lambda options: object()", "create_agent('lamp', {})", "object",
    ),
    "an error": ("create_agent=lambda options: 1 / 0", "create_agent('lamp', {})", "division"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "call", "said"), KIND_LIES.values(), ids=KIND_LIES)
def test_a_kind_that_breaks_the_contract_is_named(
    site: Site, change: str, call: str, said: str
) -> None:
    code = f"{KIND}\nfrom dataclasses import replace\nKIND = replace(KIND, {change})\n"
    site.install("lamp-kind", "[fleetrank.kinds]\nlamp = lamp_kind:KIND\n", code)
    with pytest.raises(PermanentError, match=r"lamp-kind 1\.2") as caught:
        eval(call, {"load_kind": load_kind, "create_agent": create_agent})
    assert said in caught.value.message


def test_a_broken_kind_leaves_the_others(site: Site) -> None:
    site.install("lamp-kind", "[fleetrank.kinds]\nlamp = lamp_kind:KIND\n", "KIND = 7")
    assert set(all_kinds()) == {*KINDS, "browser"}
    with pytest.raises(EntryPointError, match="not a `DeviceKind`"):
        load_kind("lamp")
    with pytest.raises(PermanentError, match="unknown device kind 'lamq'"):
        load_kind("lamq")


def test_a_row_names_the_package_and_an_agent_that_errs_is_a_failed_row(
    site: Site, tmp_path: Path
) -> None:
    lies = """
    class OneAgent(SimulatedAgent):
        def measure(self, task, stop_requested):
            if task.seed == 1:
                raise LookupError("no such lamp")
            from dataclasses import replace
            return replace(super().measure(task, stop_requested), task_id="of/another/0/0")
    KIND = DeviceKind(
        create_agent=lambda options: OneAgent({}),
        traits_of=KIND.traits_of,
        default_backend=KIND.default_backend,
    )
    """
    code = KIND + textwrap.dedent(lies)
    site.install("lamp-kind", "[fleetrank.kinds]\nlamp = lamp_kind:KIND\n", code)
    first = MeasureTask(
        task_id="s/c/0/0",
        artifact_path="",
        artifact_sha256="",
        execution=Execution(runtime=Runtime.ONNX, backend="bulb"),
        macs_and_parameters=(1_000_000, 1_000),
        limits=RepeatLimits(timeout_s=5.0),
    )
    host, spec = Host(tmp_path / "host"), DeviceSpec(name="l", kind="lamp")
    found: list[Measurement] = []
    for task in (first, replace(first, task_id="s/c/1/0", seed=1)):
        host.accept([DeviceTask(spec=spec, task=task)], has_files=True)
        assert host.is_idle(20.0)
        reply = host.poll(PollRequest(sweep_id="s", session=task.task_id))
        found += [one for one in reply.measurements if one.task_id == task.task_id]
    good, bad = found
    assert good.packages == bad.packages == ("lamp-kind 1.2",)
    assert good.samples_ns
    assert bad.failure is not None
    assert (bad.failure.kind, bad.failure.message) == (
        ErrorKind.INTERNAL, "LookupError: no such lamp",
    )  # fmt: skip
    assert "bug in lamp-kind 1.2" in bad.failure.remedy


SUMMARY = """
SUT name : PySUT
Scenario : SingleStream
Result is : VALID
Mean latency (ns)               : 1300000
50.00 percentile latency (ns)   : 1290000
"""


def test_rows_of_an_importer_name_its_package(site: Site, tmp_path: Path) -> None:
    site.install("fleetrank-mlperf", "[fleetrank.importers]\nmlperf = fleetrank_mlperf:IMPORTER\n")
    for benchmark, text in (
        ("resnet50", SUMMARY),
        ("bert-99", SUMMARY.replace("SingleStream", "Offline")),
        ("retinanet", SUMMARY.replace(": VALID", ": INVALID")),
        ("gptj-99", SUMMARY.replace("1290000", "nan")),
    ):
        folder = tmp_path / f"v5.0/results/box/{benchmark}/SingleStream/performance/run_1"
        folder.mkdir(parents=True)
        (folder / "mlperf_log_summary.txt").write_text(text)
    (release,) = read_releases("mlperf", tmp_path / "v5.0/results", None)
    rows = {row["model"]: row for row in release.rows}
    assert release.version == "v5.0"
    assert rows["mlperf:resnet50"]["latency_p50_ns"] == 1_290_000
    assert [row["status"] for row in rows.values()].count("failed") == 3
    assert all(row["packages"] == ["fleetrank-mlperf 1.2"] for row in rows.values())


IMPORTER_LIES = {
    "an error": ("1 / 0", "division by zero"),
    "no release": ("(3,)", "int"),
    "another source": ("(Release(source='timm', version='1', licence='', rows=()),)", "timm"),
    "an incomplete row": (
        "(Release(source='odd', version='1', licence='', rows=({'source': 'odd'},)),)",
        "has no status",
    ),
}


@pytest.mark.parametrize(("result", "said"), IMPORTER_LIES.values(), ids=IMPORTER_LIES)
def test_an_importer_that_breaks_the_contract_is_named(
    site: Site, tmp_path: Path, result: str, said: str
) -> None:
    code = (
        "from fleetrank.analysis.importers.importer import Importer\n"
        "from fleetrank.analysis.importers.release import Release\n"
        f"IMPORTER = Importer(read=lambda path, mapping: {result})\n"
    )
    site.install("odd-one", "[fleetrank.importers]\nodd = odd_one:IMPORTER\n", code)
    with pytest.raises(AnalysisError) as caught:
        read_releases("odd", tmp_path, None)
    assert said in caught.value.message
    assert "odd" in caught.value.message


def test_a_change_of_a_contract_is_deliberate() -> None:
    """CHANGELOG announces it, and docs/extend.md says when it may come."""
    kind, importer, release = (
        {one.name for one in fields(cls)} for cls in (DeviceKind, Importer, Release)
    )
    runner = {name for name in dir(OutsideRunner) if not name.startswith("_")}
    runner |= {*Runner.__annotations__, *FormatReader.__annotations__}
    assert kind == {
        "create_agent", "traits_of", "default_backend", "check_library", "check_host",
        "is_probed_when_added", "registrar", "discoverer",
    }  # fmt: skip
    assert runner == {
        "format", "describe", "capability", "library", "version", "admit", "load",
    }  # fmt: skip
    assert importer == {"read", "needs_mapping", "needs_path"}
    assert release == {
        "source", "version", "licence", "rows", "evaluations", "aliases", "notes",
    }  # fmt: skip


HELP = """
import sys
from fleetrank.foundation.entry_points import entry_points_of
from fleetrank.orchestrator.cli.main import run
for words in ([], ["run"], ["devices", "add"], ["results", "import"], ["sweep", "run"]):
    run([*words, "--help"])
sys.exit(entry_points_of.cache_info().misses)
"""


@pytest.mark.slow
def test_help_reads_no_packages() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, check=False)
    assert done.returncode == 0
