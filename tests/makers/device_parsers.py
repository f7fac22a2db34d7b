"""Every parser of text that a device or its driver writes, with a text that it reads.

`COVERED` and `OTHER_TEXT` together name every module of `device_agents` that looks into text: a
test fails when a module is added to neither.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from phone_farm.battery import battery_dump
from phone_farm.imitation.protobuf_writer import encode_floats, encode_integers, encode_messages
from phone_farm.services import power_dump, thermal_dump

from fleetrank.device_agents.android import adb_text
from fleetrank.device_agents.android.phone import split_sections
from fleetrank.device_agents.android.phone_streams import split_marked
from fleetrank.device_agents.android.programs.benchmark_inputs import refuse_other_order
from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.delegate_flags import EXTERNAL
from fleetrank.device_agents.android.programs.delegation_text import read_delegation
from fleetrank.device_agents.android.programs.executor_runner import ExecutorRunner
from fleetrank.device_agents.android.programs.operator_times import module_of, read_operators
from fleetrank.device_agents.android.programs.ort_runner import OrtRunner, decode_tensors
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.android.programs.program_text import named_fields
from fleetrank.device_agents.android.state import clusters, dumpsys, power_text, probe_text, waits
from fleetrank.device_agents.android.state import phone_cores as cores_module
from fleetrank.device_agents.android.state.fitness import conditions_of_sections, to_conditions
from fleetrank.device_agents.android.state.probe_text import (
    PROPERTIES,
    facts_of_sections,
    to_device_facts,
    why_refused,
)
from fleetrank.device_agents.board import board_state
from fleetrank.device_agents.board.ssh_text import transport_error
from fleetrank.device_agents.contract import failures
from fleetrank.device_agents.device_output import MAX_PROBE_BYTES, parse_throttled
from fleetrank.device_agents.linux import (
    conditions,
    cores,
    cpu_facts,
    worker_client,
    worker_process,
)
from fleetrank.foundation.cpus import parse_cpu_list
from fleetrank.foundation.errors import says_out_of_memory

DATA = Path(__file__).parents[1] / "data"
Parser = Callable[[str], object]

LISTING = """List of devices attached
0A041FDD4001V7         device usb:1-1 product:oriole model:Pixel_6 device:oriole transport_id:1
127.0.0.1:41000        offline transport_id:12
R58M30ABCDE            unauthorized 1-3.2 transport_id:4
????????????           no permissions (are your udev rules wrong?) usb:1-4 transport_id:5
my device $(id)        device usb:2-1 model:X
"""
SERVICES = "adb-1A-xY\t_adb-tls-connect._tcp\t192.168.1.7:37123\nb _adb._tcp. 10.0.0.2:5555\n"
CORES = "0 1803000 1803000 300000 schedutil\n1 2802000 2000000 500000 walt\n3 - - - -\n"
TOPOLOGY = """online 0-1
related 0 0 1
processor\t: 0
CPU implementer\t: 0x41
CPU part\t: 0xd03
"""
DF = """Filesystem     1K-blocks     Used Available Use% Mounted on
/dev/block/dm-5 113700000 13700000 100000000  13% /data
"""
MEMINFO = "MemTotal:        7731000 kB\nMemFree: 100000 kB\nMemAvailable:   3865500 kB\n"
STAT = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8\n"
STATUS = "Name:\tpython\nVmHWM:\t  20000 kB\nVmRSS:\t  10000 kB\n"
CPUINFO = "model name\t: AMD EPYC 7B13\ncpu MHz\t\t: 2449.998\nflags\t\t: fpu hypervisor\n"
WORDS = "std::bad_alloc\nFailed to allocate memory\nCUDA error: unknown error\n"
BENCHMARK = (DATA / "benchmark_model" / "litert.txt").read_text(encoding="utf-8")
LITERT_2 = (DATA / "benchmark_model" / "litert2.txt").read_text(encoding="utf-8")
PROFILED = (DATA / "benchmark_model" / "tf1_profiling.txt").read_text(encoding="utf-8")
OPERATORS = (DATA / "benchmark_model" / "litert_profiled.txt").read_text(encoding="utf-8")
NODE = "[a.nn.Net/a.nn.Block_4/a.nn.Linear_up;;a.nn.Net/a.nn.Block_4;1, a.nn.Net;2]:12"
EXECUTOR = (DATA / "executor_runner" / "logcat.txt").read_text(encoding="utf-8")
ORT = (DATA / "ort_runner" / "cpu.txt").read_text(encoding="utf-8")


def output(
    text: str, *, exit_code: int = 0, result: bytes | None = None, backend: str = "gpu"
) -> ProgramOutput:
    """What a program left that wrote `text`."""
    run = ProgramCall(argv=("/t/benchmark_model", f"--use_{backend}=true"), warmup_runs=1)
    return ProgramOutput(run=run, exit_code=exit_code, stdout=text, stderr="", result=result)


def _facts(text: str) -> object:
    names = (*PROPERTIES, "host.memory", "storage", "battery", "thermal", "gpu", "taskset", "cores")
    facts = facts_of_sections(_shared(names, text), has_exit_codes=True)
    why_refused(facts)
    return to_device_facts(facts, adb_version="36")


def _conditions(text: str) -> object:
    names = ("load", "host.memory", "boot", "battery", "thermal", "power", "cores")
    return to_conditions(conditions_of_sections(_shared(names, text)))


def _shared(names: Sequence[str], text: str) -> dict[str, str]:
    """The text in every section where it is short; all sections together have a probe's bound."""
    return dict.fromkeys(names, text[: max(4096, MAX_PROBE_BYTES // len(names))])


def _power(text: str) -> object:
    return power_text.parse_look(_shared(("supply", "rails", "battery"), text))


BOARD_PATHS = (
    *(f"sys/devices/system/cpu/cpufreq/policy0/{name}" for name in
      ("related_cpus", "cpuinfo_max_freq", "scaling_max_freq", "scaling_cur_freq")),
    "sys/class/thermal/thermal_zone0/temp", "sys/class/hwmon/hwmon1/oc1_event_cnt",
    "vcgencmd get_throttled", "vcgencmd measure_clock arm", "nvpmodel -q",
    "proc/device-tree/model", "proc/device-tree/compatible", "etc/os-release", "proc/cpuinfo",
)  # fmt: skip


def _board(text: str) -> object:
    found = _shared(BOARD_PATHS, text)
    return (
        board_state.parse_state(found),
        board_state.parse_model(found),
        board_state.parse_soc(found),
        board_state.parse_os(found),
        board_state.parse_clusters(found, (0, 1)),
    )


def _wrong_order(text: str) -> object:
    return refuse_other_order(("--input_layer=ids,mask",), text)


PROBES: dict[str, tuple[Parser, str]] = {
    "board": (_board, "1500000\nfrequency(48)=1500345728\nNV Power Mode: MAXN\n" + CPUINFO),
    "throttled": (parse_throttled, "throttled=0x50005\n"),
    "ssh": (lambda text: transport_error("pi5", text), "pi5: Permission denied (publickey).\n"),
    "devices": (adb_text.parse_devices, LISTING),
    "services": (adb_text.parse_mdns_services, SERVICES),
    "connected": (adb_text.is_connected, "already connected to 127.0.0.1:5"),
    "serial": (adb_text.is_network_serial, "127.0.0.1:5555"),
    "refusal": (lambda text: adb_text.error_of_refusal("a", text), "device 'a' not found"),
    "battery": (dumpsys.parse_battery, battery_dump(())),
    "thermal": (dumpsys.parse_thermal, thermal_dump(())),
    "power": (dumpsys.parse_is_screen_on, power_dump()),
    "electric": (
        _power,
        battery_dump(()) + "charge_counter 2712\nt=1\nCH3(T=349894)[S2M_VDD_CPUCL2], 30203502\n",
    ),
    "cores": (cores_module.parse_cores, CORES),
    "topology": (clusters.parse_topology, TOPOLOGY),
    "df": (probe_text.free_bytes, DF),
    "uptime": (waits.parse_uptime, "1\n8412.55 60123.11\n"),
    "facts": (_facts, MEMINFO + DF + CORES + "GLES: ARM, Mali-G78\n"),
    "linux.conditions": (_conditions, battery_dump(()) + MEMINFO + CORES + "mWakefulness=Awake\n"),
    "sections": (lambda text: split_sections(text, "0f"), "\n0f a\nfirst\n\n0f b\nsecond\n"),
    "marked": (lambda text: split_marked(text, "0f"), "output\r\n0f 0\r\n"),
    "load": (conditions.parse_load, "0.62 0.71 0.80 1/1204 9031\n"),
    "available": (conditions.parse_available_memory, MEMINFO),
    "stat": (conditions.parse_stat, STAT),
    "clocks": (conditions.parse_cpuinfo_mhz, CPUINFO),
    "oom": (conditions.parse_oom_kills, "nr_free_pages 1\noom_kill 3\n"),
    "status": (worker_process.parse_status, STATUS),
    "cpu model": (cpu_facts.parse_cpu_model, CPUINFO),
    "cpu flags": (cpu_facts.parse_is_virtual, CPUINFO),
    "cpu list": (parse_cpu_list, "0-3,8\n"),
    "designs": (cores.parse_designs, TOPOLOGY),
}
"""Parser and a text that it reads, of a probe's size."""

TOOLS: dict[str, tuple[Parser, str]] = {
    "benchmark text": (lambda text: BenchmarkModel().read(output(text)), BENCHMARK),
    "LiteRT 2 text": (lambda text: BenchmarkModel().read(output(text)), LITERT_2),
    "profiled text": (lambda text: BenchmarkModel().read(output(text)), PROFILED),
    "operators": (read_operators, OPERATORS),
    "module of a node": (module_of, NODE),
    "benchmark file": (
        lambda text: BenchmarkModel().read(output(BENCHMARK, result=text.encode())),
        "\x0a\x01a\x12\x05\x0d\x00\x00\x10A",
    ),
    "inputs": (_wrong_order, "Tensor # 0 is named serving_default_a:0 but flags call it ids\n"),
    "delegation": (lambda text: read_delegation(text, "gpu"), BENCHMARK),
    "external": (
        lambda text: read_delegation(text, EXTERNAL),
        f"{BENCHMARK}INFO: QnnDelegate delegate: 29 nodes delegated out of 31 nodes with 2\n",
    ),
    "fields": (named_fields, "first=8522 curr=8498 avg=8.56e+06"),
    "executor text": (lambda text: ExecutorRunner().read(output(text)), EXECUTOR),
    "ort text": (lambda text: OrtRunner().read(output(text)), ORT),
    "ort outputs": (
        lambda text: list(decode_tensors(text.encode())),
        (DATA / "ort_runner" / "outputs.bin").read_bytes()[:40].decode(),
    ),
    "failed": (lambda text: BenchmarkModel().read(output(text, exit_code=1)), WORDS),
    "out of memory": (says_out_of_memory, WORDS),
    "device lost": (failures.says_device_lost, WORDS),
    "stage": (worker_client.last_stage, "fleetrank-stage load\nfleetrank-stage timed\n"),
}
"""Parser and a text that it reads, of a program's size."""

COVERED = {
    "android.programs.benchmark_model",
    "board.ssh",
    "board.board_state",
    "android.adb_text",
    "android.adb_server",
    "android.execution.program_run",
    "android.programs.benchmark_text",
    "android.programs.executor_runner",
    "android.programs.ort_runner",
    "android.phone_streams",
    "android.programs.benchmark_inputs",
    "android.programs.delegation_text",
    "android.programs.litert_text",
    "android.programs.operator_times",
    "android.programs.program_text",
    "android.state.clusters",
    "android.state.dumpsys",
    "android.state.fitness",
    "android.state.phone_cores",
    "android.state.power_text",
    "android.state.probe_text",
    "android.state.waits",
    "board.ssh_text",
    "contract.failures",
    "linux.conditions",
    "linux.cores",
    "linux.cpu_facts",
    "device_output",
    "linux.worker_client",
    "linux.worker_process",
}
"""Modules that parse device text and are reached through `PROBES` or `TOOLS`."""

OTHER_TEXT = {
    "contract.plugin_backends": "a backend of the user's sweep, matched as a whole",
    "android.adb_server": "what the user's own adb binary prints, and a variable",
    "android.phone": "reads, and hands on",
    "android.execution.program_run": "reads, and hands on",
    "android.execution.program_files": "names of the user's files, matched as a whole",
    "android.file_sync": "numbers of adb's sync protocol, and a phone's words, shortened",
    "android.adb_address": "adb's variables and an option of the user's, matched as a whole",
    "android.programs.delegate_flags": "a backend of the user's sweep; `benchmark_model` uses it",
    "android.state.phone_lock": "a name of 32 digits, matched as a whole",
    "board.board_files": "names of files of this side, matched as a whole",
    "board.board_registrar": "a version of libc, matched as a whole",
    "board.ssh": "the user's name of a host, matched as a whole",
    "board.there.board_host": "names of files that this side sends, matched as a whole",
    "board.there.judged_agent": "what the firmware of a board prints, bounded where it is read",
    "cuda.nvml": "answers of the driver, as numbers and names",
    "linux.control_groups": "files of the kernel",
    "hosts.files": "names of files that a driver sends, matched as a whole",
    "profiling.executorch_profiler": "names of operators in a trace of the worker's own process",
    "profiling.onnx_graph": "model files",
    "runtimes.executorch_runner": "a runtime's errors in the worker's own process",
    "runtimes.pt2_program": "model files",
    "runtimes.pt2_forms": "model files",
    "runtimes.pt2_scan": "model files",
}
"""Modules that look into other text, and which."""


_PARTS = {"latency_metrics": 2, "memory_metrics": 3, "misc_metrics": 4}
_FIELDS = {
    "latency_metrics": "avg_ms min_ms max_ms stddev_ms median_ms p5_ms p95_ms init_ms "
    "first_inference_ms average_warm_up_ms",
    "memory_metrics": "init_footprint_kb overall_footprint_kb peak_mem_mb",
    "misc_metrics": "model_size_mb num_runs num_warmup_runs model_throughput_in_mb_per_sec",
}
"""In the order of their numbers, from 1."""


def encode_result(parts: Mapping[str, Mapping[str, float]]) -> bytes:
    return encode_messages({_PARTS[name]: _encode(name, part) for name, part in parts.items()})


def _encode(part: str, values: Mapping[str, float]) -> bytes:
    numbers = {name: number for number, name in enumerate(_FIELDS[part].split(), start=1)}
    whole = {name for name in values if name.endswith("_kb") or name.startswith("num_")}
    return encode_floats(
        {numbers[name]: value for name, value in values.items() if name not in whole}
    ) + encode_integers({numbers[name]: int(values[name]) for name in whole})
