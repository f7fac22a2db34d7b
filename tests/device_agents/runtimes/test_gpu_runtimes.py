"""What PyTorch and ONNX Runtime are asked for on a GPU, and what they say when they cannot."""

from types import ModuleType, SimpleNamespace

import pytest

from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.task import Execution, OptionValue
from fleetrank.device_agents.cuda.gpu_use import TorchGpuMemory
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes import onnx_cuda
from fleetrank.device_agents.runtimes.onnx_cuda import OnnxGpu, load
from fleetrank.device_agents.runtimes.torch_cuda import TorchGpu
from fleetrank.device_agents.runtimes.torch_runner import bare_module, moved
from fleetrank.foundation.vocabulary import Mode, Precision, Runtime

TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)."


opened: list[bool] = []
"""Grows whenever the stand-in makes a context."""


def torch_that(
    *, error: Exception | None = None, archs: tuple[str, ...] = ("sm_80", "sm_90")
) -> ModuleType:
    def init() -> None:
        if error is not None:
            raise error

    torch = ModuleType("torch")
    torch.version = SimpleNamespace(cuda="13.0")  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        init=init,
        synchronize=lambda: opened.append(True),
        get_device_capability=lambda _index: (9, 0),
        get_arch_list=lambda: list(archs),
        DeferredCudaCallError=type("DeferredCudaCallError", (Exception,), {}),
    )
    return torch


def test_opening_makes_the_context_that_idle_power_is_measured_with() -> None:
    opened.clear()
    TorchGpu(torch_that()).open()
    assert opened


def test_a_driver_too_old_for_pytorch_is_unsupported_with_its_words() -> None:
    with pytest.raises(UnsupportedError, match="too old") as raised:
        TorchGpu(torch_that(error=RuntimeError(TOO_OLD))).open()
    assert "update a driver" in raised.value.remedy


NOT_READY = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
)
"""Where the fabric manager of NVLink switches is still starting. Source: PyTorch 2.11."""


def test_a_gpu_that_is_not_ready_yet_is_no_matter_of_versions() -> None:
    with pytest.raises(RuntimeError, match="not yet initialized") as raised:
        TorchGpu(torch_that(error=RuntimeError(NOT_READY))).open()
    assert failure_from_error(raised.value, "load").is_transient


@pytest.mark.parametrize(
    ("archs", "can_run"),
    [
        (("sm_80", "sm_90"), True), (("sm_90a",), True), (("sm_80",), False), (("sm_100",), False),
        (("sm_80", "compute_80"), True), ((), True),
    ],
)  # fmt: skip
def test_code_for_another_architecture_is_refused(archs: tuple[str, ...], can_run: bool) -> None:
    gpu = TorchGpu(torch_that(archs=archs))
    if can_run:
        gpu.open()
    else:
        with pytest.raises(UnsupportedError, match=r"no code for compute capability 9\.0"):
            gpu.open()


def test_a_pytorch_without_cuda_says_so_wherever_it_is_opened_first() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda:
        pytest.skip("this PyTorch is built with CUDA")
    with pytest.raises(UnsupportedError, match="built without CUDA"):
        TorchGpu(torch).open()
    with pytest.raises(UnsupportedError, match="built without CUDA"):
        TorchGpuMemory().open(flushes=False)


def test_nothing_of_a_moved_program_stays_on_the_processor() -> None:
    torch = pytest.importorskip("torch")

    class Mixed(torch.nn.Module):
        """Weights, a buffer, a constant, factories with a device burnt in, and a cast."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)
            self.register_buffer("offset", torch.ones(8))
            self.plain = torch.arange(8)

        def forward(self, x: object) -> object:
            places = torch.arange(8, device=x.device) + self.plain  # type: ignore[attr-defined]
            moved = places.to(device="cpu", dtype=torch.float32) + torch.zeros(8)
            return self.linear(x) + self.offset + moved + torch.tensor(2.0)

    program = torch.export.export(Mixed().eval(), (torch.zeros(1, 8),))
    assert "cpu" in str(program.graph)
    # The device without memory computes shapes only, and refuses a tensor of any other device.
    module = bare_module(moved(program, "meta"))
    with torch.inference_mode():
        output = module(torch.empty(1, 8, device="meta"))
    (found,) = torch.utils._pytree.tree_leaves(output)
    assert (found.device.type, tuple(found.shape)) == ("meta", (1, 8))
    assert "cpu" not in str(program.graph)


def onnx_on(backend: str = "cuda", **changes: object) -> Execution:
    return Execution(runtime=Runtime.ONNX, backend=backend, **changes)  # type: ignore[arg-type]


def test_fp32_means_fp32_unless_tf32_is_asked_for() -> None:
    options: tuple[tuple[str, OptionValue], ...] = (("tf32", True),)
    ((name, plain),) = OnnxGpu().providers(onnx_on(), None)
    ((_, rounding),) = OnnxGpu().providers(onnx_on(options=options), None)
    assert name == "CUDAExecutionProvider"
    assert (plain["use_tf32"], rounding["use_tf32"]) == ("0", "1")
    assert (plain["device_id"], plain["enable_cuda_graph"]) == ("0", "0")


def test_tensorrt_comes_first_and_cuda_takes_what_it_leaves() -> None:
    execution = onnx_on("tensorrt", precision=Precision.FP16, mode=Mode.GRAPHS)
    (first, trt), (second, cuda) = OnnxGpu().providers(execution, 4096)
    assert (first, second) == ("TensorrtExecutionProvider", "CUDAExecutionProvider")
    assert (trt["trt_fp16_enable"], trt["trt_cuda_graph_enable"]) == ("1", "1")
    assert cuda["enable_cuda_graph"] == "0"
    assert {trt["user_compute_stream"], cuda["user_compute_stream"]} == {"4096"}


def test_an_onnx_runtime_without_the_provider_names_the_package_that_has_it() -> None:
    ort = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this ONNX Runtime has the CUDA provider")
    with pytest.raises(UnsupportedError, match="no CUDAExecutionProvider") as raised:
        load(ort, "none.onnx", ort.SessionOptions(), onnx_on())
    assert "onnxruntime-gpu" in raised.value.remedy


def test_a_stream_of_a_pytorch_that_cannot_use_the_gpu_says_why() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this PyTorch can use a GPU")
    options: tuple[tuple[str, OptionValue], ...] = (("torch_stream", True),)
    ort = ort_that_raises(RuntimeError("not reached"))
    with pytest.raises(UnsupportedError, match="PyTorch"):
        load(ort, "any.onnx", object(), onnx_on(options=options))


def test_a_session_that_fell_back_in_silence_is_refused(
    onnx_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    ort = pytest.importorskip("onnxruntime")

    class Claims(OnnxGpu):
        def providers(self, execution: Execution, stream: int | None) -> onnx_cuda.Providers:
            return [("CUDAExecutionProvider", {}), ("CPUExecutionProvider", {})]

        def why_absent(self, ort: ModuleType, provider: str) -> str | None:
            return None

    monkeypatch.setattr(onnx_cuda, "OnnxGpu", Claims)
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(UnsupportedError, match="fell back from CUDAExecutionProvider to CPU"),
    ):
        load(ort, str(onnx_file), ort.SessionOptions(), onnx_on())


OLD_DRIVER = (
    'provider_options_utils.h:187 Parse Failed to parse provider option "device_id": CUDA failure '
    "35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=vm"
)
"""Source: onnxruntime-gpu 1.30.0 with driver 555."""


def ort_that_raises(error: Exception) -> ModuleType:
    def session(*_arguments: object, enable_fallback: int) -> object:
        assert not enable_fallback  # it would try again without the GPU, and print the reason
        raise error

    ort = ModuleType("onnxruntime")
    ort.InferenceSession = session  # type: ignore[attr-defined]
    ort.get_available_providers = lambda: ["CUDAExecutionProvider"]  # type: ignore[attr-defined]
    return ort


def test_a_provider_that_cannot_be_made_is_unsupported_with_its_words() -> None:
    options = pytest.importorskip("onnxruntime").SessionOptions()
    with pytest.raises(UnsupportedError, match="driver version is insufficient") as raised:
        load(ort_that_raises(RuntimeError(OLD_DRIVER)), "any.onnx", options, onnx_on())
    assert "driver is too old" in raised.value.remedy


@pytest.mark.parametrize(
    "words",
    ["CUDA failure 2: out of memory ; GPU=0", "CUDA failure 999: CUDA error: unknown error"],
)
def test_what_says_more_than_a_missing_provider_is_passed_on(words: str) -> None:
    options = pytest.importorskip("onnxruntime").SessionOptions()
    with pytest.raises(RuntimeError, match="CUDA failure"):
        load(ort_that_raises(RuntimeError(words)), "any.onnx", options, onnx_on())
