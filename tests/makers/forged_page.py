"""A program that talks to the server as a page does, and says what a test wants."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fleetrank.device_agents.browser.agent import BrowserAgent
from fleetrank.device_agents.browser.desk import Desk, hash_of
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.tab_messages import TabArray
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.foundation.codec import to_plain

TIMES: Mapping[str, object] = {
    "load_ns": 10**6, "first_inference_ns": 10**6, "warmup_ns": 10**6, "warmup_runs": 10,
    "is_warmup_stable": True, "samples_ns": [10**6] * 20, "runs_per_sample": 1,
    "stop_reason": "half_width", "clock_step_ns": 5000, "threads": 1, "version": "1.30.0",
    "adapter": None, "longest_gap_ns": 0,
}  # fmt: skip


class ForgedPage:
    """One tab with its own key, which the desk expects."""

    key, tab = "key-of-a-forged-page-1", "tab"
    facts: Mapping[str, object] = {
        "agent": "forged", "engine": "forged 1", "system": "none", "cores": 2, "memory_gib": None,
        "is_isolated": True, "has_wasm": True, "clock_step_ns": 5000, "adapter": None,
    }  # fmt: skip

    def __init__(self, place: Place, desk: Desk) -> None:
        self.place = place
        desk.expected.add(hash_of(self.key))
        self.agent = BrowserAgent(
            {"listen": place.listen, "key_hash": hash_of(self.key), "engine": "forged 1"}
        )

    def call(self, *, is_new: bool = False) -> dict[str, object]:
        return {"tab": self.tab, "is_new": is_new, "is_hidden": False, "facts": dict(self.facts)}

    def post(self, name: str, body: object, key: str | None = None) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        shown = self.key if key is None else key
        request = urllib.request.Request(
            f"{self.place.link}api/{name}", data, {"authorization": f"Bearer {shown}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def answer(
        self,
        task: MeasureTask,
        *,
        scale: float = 1.0,
        inputs: tuple[list[int], str] = ([1, 3, 16, 16], "float32"),
        **forged: object,
    ) -> Measurement:
        """Measures a task, whose right answer is changed in what is forged."""
        with ThreadPoolExecutor(1) as pool:
            measuring = pool.submit(self.agent.measure, task)
            status, text = self.post("next", self.call())
            assert status == 200, text
            given = json.loads(text)
            stated = [{"name": "x", "dtype": inputs[1], "shape": inputs[0]}]
            loaded = {"tab": self.tab, "task_id": given["task_id"], "inputs": stated}
            if self.post("inputs", loaded)[0] != 200:
                return measuring.result(timeout=60)
            self.post("done", self._frame(given["task_id"], task, scale, forged))
            return measuring.result(timeout=60)

    def _frame(
        self, task_id: str, task: MeasureTask, scale: float, forged: Mapping[str, object]
    ) -> bytes:
        import onnxruntime

        session = onnxruntime.InferenceSession(task.artifact_path)
        from fleetrank.device_agents.runtimes.made_inputs import make_inputs
        from fleetrank.foundation.inputs import ModelInput

        (array,) = make_inputs([ModelInput(name="x", shape=(1, 3, 16, 16), dtype="float32")], 0)
        (output,) = session.run(None, {"x": array})
        stated = [TabArray(name="y", dtype="float32", shape=output.shape)]
        times = {**TIMES, "outputs": stated, **forged}
        times["outputs"] = [to_plain(one) for one in times["outputs"]]  # type: ignore[attr-defined]
        text = json.dumps({"tab": self.tab, "task_id": task_id, "error": None, "times": times})
        data = (output * np.float32(scale)).astype(np.float32).tobytes()
        return len(text.encode()).to_bytes(4, "big") + text.encode() + data
