// Measures one repeat, then ends. A classic worker, because LiteRT.js loads a script.
// It gets the task with the file, says which inputs the file has, gets them, and answers.
const ns = (ms) => Math.round(ms * 1e6);
const base = new URL(".", self.location.href).href;
const TYPES = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
  int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, float16: self.Float16Array ?? Uint16Array,
};
class Refused extends Error {
  constructor(kind, message) { super(message); this.kind = kind; }
}

// The name of the graphics adapter; software ones are no device of any user.
async function adapterOf(task) {
  if (task.backend !== "webgpu") return null;
  const adapter = await self.navigator.gpu?.requestAdapter();
  if (!adapter) throw new Refused("unsupported", "this browser has no WebGPU adapter");
  const info = adapter.info ?? {};
  const name = [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(" ");
  if (info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|basic render|software/i.test(name)) {
    throw new Refused("unsupported", `WebGPU has only a software adapter: ${name}`);
  }
  return name || "unnamed";
}

async function openOnnx(task, file) {
  const isGpu = task.backend === "webgpu";
  const ort = await import(isGpu ? "./ort.webgpu.min.mjs" : "./ort.wasm.min.mjs");
  ort.env.wasm.numThreads = task.threads;
  ort.env.wasm.wasmPaths = base;
  ort.env.logLevel = "error";
  const options = { executionProviders: [task.backend], graphOptimizationLevel: "all" };
  const session = await ort.InferenceSession.create(new Uint8Array(file), options);
  let feeds = {}, last = {};
  return {
    inputs: session.inputMetadata.map((one) => ({
      name: one.name, dtype: one.type ?? "string",
      shape: (one.shape ?? []).map((size) => (typeof size === "number" && size >= 0 ? size : null)),
    })),
    setInputs(arrays) {
      feeds = Object.fromEntries(
        arrays.map((one) => [one.name, new ort.Tensor(one.dtype, one.data, one.shape)]));
    },
    async run() {
      last = await session.run(feeds);
      if (isGpu) for (const name of session.outputNames) await last[name].getData(true);
    },
    outputs: () => session.outputNames.map((name) => (
      { name, dtype: last[name].type, shape: [...last[name].dims], data: last[name].data })),
    threads: () => ort.env.wasm.numThreads,
    version: ort.env.versions.web,
  };
}

async function openLitert(task, file) {
  const litert = await import("./litert.js");
  await litert.loadLiteRt(base, { threads: false });
  const model = await litert.loadAndCompile(new Uint8Array(file), { accelerator: task.backend });
  // It goes back to the processor without an error.
  if (model.options.accelerator !== task.backend || (task.backend !== "wasm" && !model.isFullyAccelerated)) {
    throw new Refused("unsupported", `LiteRT.js cannot run the whole file on ${task.backend}`);
  }
  let feeds = [], last = [];
  const details = model.getOutputDetails();
  return {
    inputs: model.getInputDetails().map((one) => (
      { name: one.name, dtype: one.dtype, shape: [...one.shape].map((size) => (size >= 0 ? size : null)) })),
    setInputs(arrays) {
      feeds = arrays.map((one) => new litert.Tensor(one.data, one.shape));
    },
    async run() {
      for (const one of last) one.tensor.delete();
      const found = await model.run(feeds);
      last = [];
      for (const tensor of found) last.push({ tensor, data: await tensor.data() });
    },
    outputs: () => last.map((one, index) => (
      { name: details[index].name, dtype: details[index].dtype, shape: [...details[index].shape], data: one.data })),
    threads: () => 1,
    version: task.litert_version,
  };
}

function arraysOf({ stated, bytes }) {
  let at = 0;
  return stated.map(({ name, dtype, shape }) => {
    const size = shape.reduce((a, b) => a * b, 1) * TYPES[dtype].BYTES_PER_ELEMENT;
    const data = new TYPES[dtype](bytes.slice(at, at + size));
    at += size;
    return { name, dtype, shape, data };
  });
}

let arrived = null;
const inputsFor = (inputs) => new Promise((done) => {
  arrived = done;
  self.postMessage({ type: "loaded", inputs });
});

async function measure(task, file) {
  const { clockStep, runsPerSample, timeRuns, warmUp } = await import("./timing.js");
  const clock = () => performance.now();
  const step = clockStep(clock);
  const adapter = await adapterOf(task);
  let began = clock();
  let model;
  try {
    model = await (task.runtime === "onnx-web" ? openOnnx : openLitert)(task, file);
  } catch (error) {
    throw error instanceof Refused ? error : new Refused("bad_artifact", `the library rejects the file: ${said(error)}`);
  }
  const load = clock() - began;
  if (model.threads() !== task.threads) {
    throw new Refused("unsupported", `${task.threads} threads were asked for, and the library uses ${model.threads()}`);
  }
  model.setInputs(arraysOf(await inputsFor(model.inputs)));
  began = clock();
  await model.run();
  const first = clock() - began;
  const warm = await warmUp(model.run, clock, task.policy);
  const perSample = await runsPerSample(model.run, clock, step);
  const timed = task.bare_runs
    ? await bareRuns(model.run, task.bare_runs, perSample) : await timeRuns(model.run, clock, task.policy, perSample);
  const outputs = model.outputs();
  self.postMessage({
    type: "done",
    times: {
      load_ns: ns(load), first_inference_ns: ns(first), warmup_ns: ns(warm.ms), warmup_runs: warm.runs,
      is_warmup_stable: warm.isStable, samples_ns: Array.from(timed.samples, ns), runs_per_sample: perSample,
      stop_reason: timed.reason, clock_step_ns: Math.max(1, ns(step)), threads: model.threads(),
      version: String(model.version), adapter,
      outputs: outputs.map(({ name, dtype, shape }) => ({ name, dtype, shape })),
    },
    data: outputs.map((one) => new Uint8Array(one.data.buffer, one.data.byteOffset, one.data.byteLength).slice()),
  });
}

// What a user would write, for the proof of a device: nothing but the loop.
async function bareRuns(run, count, perSample) {
  const samples = [];
  for (let sample = 0; sample < count; sample += 1) {
    const start = performance.now();
    for (let index = 0; index < perSample; index += 1) await run();
    samples.push((performance.now() - start) / perSample);
  }
  return { samples, reason: "max_samples" };
}

const said = (error) => String(error?.message ?? error).slice(0, 300);
const isMemory = (error) => error instanceof RangeError || /out of memory|alloc/i.test(said(error));

self.onmessage = async ({ data }) => {
  if (arrived) {
    arrived(data);
    arrived = null;
    return;
  }
  try {
    await measure(data.task, data.file);
  } catch (error) {
    const kind = error.kind ?? "crashed";
    self.postMessage({ type: "error", kind: isMemory(error) ? "out_of_memory" : kind, message: said(error) });
  }
};
