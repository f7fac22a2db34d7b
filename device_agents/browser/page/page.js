// Asks for tasks, gives each to a fresh worker, and watches that the page is neither hidden nor frozen.
const PAUSE_MS = 2000, BEAT_MS = 1000, LOOK_MS = 100;
const LONGEST_GAP_MS = 1500;
const tab = crypto.randomUUID();
const show = (id, text) => { document.getElementById(id).textContent = text; };
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
class Answered extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

function state(text, look = "") {
  show("state", text);
  document.getElementById("state").className = look;
}

// One value in the browser's own storage, which no other site can read.
function stored(value) {
  return new Promise((done, fail) => {
    const opening = indexedDB.open("fleetrank", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("device");
    opening.onerror = () => fail(opening.error);
    opening.onsuccess = () => {
      const store = opening.result.transaction("device", "readwrite").objectStore("device");
      const request = value === undefined ? store.get("key") : store.put(value, "key");
      request.onsuccess = () => done(request.result);
      request.onerror = () => fail(request.error);
    };
  });
}

function engine() {
  const brands = navigator.userAgentData?.brands ?? [];
  const chromium = brands.find((one) => one.brand === "Chromium");
  if (chromium) return `chromium ${chromium.version}`;
  for (const [name, pattern] of [["firefox", /Firefox\/(\d+)/], ["chromium", /Chrom(?:e|ium)\/(\d+)/],
    ["webkit", /Version\/(\d+)/]]) {
    const found = navigator.userAgent.match(pattern);
    if (found) return `${name} ${found[1]}`;
  }
  return "unknown 0";
}

async function adapterName() {
  const info = (await navigator.gpu?.requestAdapter().catch(() => null))?.info;
  return info ? [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(" ") || null : null;
}

async function readFacts() {
  const { clockStep } = await import("./timing.js");
  return {
    agent: navigator.userAgent, engine: engine(), system: navigator.userAgentData?.platform || navigator.platform || "unknown",
    cores: navigator.hardwareConcurrency ?? null, memory_gib: navigator.deviceMemory ?? null,
    is_isolated: self.crossOriginIsolated, has_wasm: typeof WebAssembly === "object",
    clock_step_ns: Math.max(1, Math.round(clockStep(() => performance.now()) * 1e6)), adapter: await adapterName(),
  };
}

async function post(key, name, body, options = {}) {
  const text = body instanceof Blob ? body : JSON.stringify(body);
  const reply = await fetch(`/api/${name}`, { method: "POST", headers: { authorization: `Bearer ${key}` }, body: text, ...options });
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => ({ message: `the server answered ${reply.status}`, remedy: "" }));
  throw new Answered(reply.status, `${problem.message}. ${problem.remedy}`);
}

async function modelFile(key, task) {
  const reply = await fetch(`/api/file/${task.sha256}`, { headers: { authorization: `Bearer ${key}` } });
  if (!reply.ok) throw new Error(`the file did not arrive: ${reply.status}`);
  const file = await reply.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex !== task.sha256) throw new Error("the file did not arrive as it was sent");
  return file;
}

const length = (text) => {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, text.length);
  return view.buffer;
};

async function inputsOf(key, task, inputs) {
  const reply = await post(key, "inputs", { tab, task_id: task.task_id, inputs });
  const bytes = await reply.arrayBuffer();
  const size = new DataView(bytes).getUint32(0);
  return { stated: JSON.parse(new TextDecoder().decode(bytes.slice(4, 4 + size))).inputs, bytes: bytes.slice(4 + size) };
}

// Measures in a worker; every end of it becomes one answer.
function measured(key, task, file) {
  return new Promise((done) => {
    const worker = new Worker(`/assets/${task.version}/worker.js`);
    let last = performance.now(), longest = 0;
    const refuse = (kind, message) => done({ error: { kind, message }, times: null, data: [] });
    const look = setInterval(() => {
      const now = performance.now();
      longest = Math.max(longest, now - last - LOOK_MS);
      last = now;
    }, LOOK_MS);
    const beat = setInterval(() => {
      post(key, "beat", { tab, task_id: task.task_id, is_gone: false }).catch((error) => {
        if (error.status === 410) done(null);
      });
    }, BEAT_MS);
    const hidden = () => document.hidden && refuse("unfit", "the tab was hidden during the repeat");
    document.addEventListener("visibilitychange", hidden);
    measured.end = () => {
      clearInterval(look);
      clearInterval(beat);
      document.removeEventListener("visibilitychange", hidden);
      worker.terminate();
    };
    worker.onerror = (event) => refuse("crashed", `the worker ended: ${event.message}`.slice(0, 300));
    worker.onmessage = async ({ data }) => {
      if (data.type === "error") return refuse(data.kind, data.message);
      if (data.type === "done") {
        longest = Math.max(longest, performance.now() - last - LOOK_MS);
        if (longest > LONGEST_GAP_MS) return refuse("unfit", `the page was frozen for ${Math.round(longest)} ms`);
        return done({ error: null, times: { ...data.times, longest_gap_ns: Math.round(longest * 1e6) }, data: data.data });
      }
      try {
        const { stated, bytes } = await inputsOf(key, task, data.inputs);
        last = performance.now();
        longest = 0;
        worker.postMessage({ stated, bytes }, [bytes]);
        state("Measuring.", "measuring");
      } catch (error) {
        if (error.status === 410) done(null); else refuse("crashed", error.message);
      }
    };
    worker.postMessage({ task, file }, [file]);
    hidden();
  });
}

async function measure(key, task) {
  state("Loading a model.");
  show("task", `${task.runtime}, ${task.backend}, ${task.threads} thread${task.threads > 1 ? "s" : ""}`);
  const gone = () => post(key, "beat", { tab, task_id: task.task_id, is_gone: true }, { keepalive: true });
  self.addEventListener("pagehide", gone);
  try {
    const answer = await measured(key, task, await modelFile(key, task));
    if (answer !== null) {
      const { data, ...rest } = answer;
      const text = new TextEncoder().encode(JSON.stringify({ tab, task_id: task.task_id, ...rest }));
      await post(key, "done", new Blob([length(text), text, ...data]));
    }
  } finally {
    measured.end?.();
    self.removeEventListener("pagehide", gone);
    show("task", "");
  }
}

async function ask(key, isNew, facts) {
  const asking = new AbortController();
  const changed = () => asking.abort();
  document.addEventListener("visibilitychange", changed);
  try {
    state(document.hidden ? "This tab is hidden: it does not measure." : "Waiting for a task.");
    return await post(key, "next", { tab, is_new: isNew, is_hidden: document.hidden, facts }, { signal: asking.signal });
  } catch (error) {
    if (error.name === "AbortError") return { status: 204 };
    throw error;
  } finally {
    document.removeEventListener("visibilitychange", changed);
  }
}

async function main() {
  const facts = await readFacts();
  for (const [name, value] of Object.entries(facts)) {
    document.getElementById("facts").append(
      Object.assign(document.createElement("dt"), { textContent: name.replaceAll("_", " ") }),
      Object.assign(document.createElement("dd"), { textContent: value === null ? "not known" : String(value) }));
  }
  const key = (await stored()) ?? `${crypto.randomUUID()}-${crypto.randomUUID()}`;
  const token = new URLSearchParams(location.hash.slice(1)).get("pair");
  if (token !== null) {
    await post(key, "pair", { token, facts });
    await stored(key);
    history.replaceState(null, "", "/");
  }
  navigator.wakeLock?.request("screen").catch(() => {});
  for (let isNew = true; ;) {
    try {
      const reply = await ask(key, isNew, facts);
      isNew = false;
      if (reply.status === 200) await measure(key, await reply.json());
    } catch (error) {
      // Another tab of this browser is the device until it is closed; then this one is.
      isNew = error.status === 409 || isNew;
      state(error.status ? error.message : "fleetrank does not run now; this page asks again.", "problem");
      await wait(PAUSE_MS);
    }
  }
}

main().catch((error) => state(error.message, "problem"));
