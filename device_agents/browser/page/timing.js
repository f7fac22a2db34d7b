// The timing loop and the stop rule, as `device_agents/timing.py` has them; times in milliseconds.
// A test holds that both decide the same.
const Z_95 = 1.959963984540054;
const MIN_SAMPLES = 6;
const GROWTH = 1.5;
const MAX_SUMS = 1024;
// A sample of fewer steps of the clock has an error of more than 2 %.
const STEPS_PER_SAMPLE = 50;
const STEP_SEARCH_MS = 50;
const TRIALS = 3;

// The half-width of the 95 % interval of the median, as a share of it; null with too few samples.
export function medianHalfWidth(samples) {
  const n = samples.length;
  if (n < MIN_SAMPLES) return null;
  const ordered = Float64Array.from(samples).sort();
  const reach = (Z_95 / 2) * Math.sqrt(n);
  const low = Math.max(Math.floor(0.5 * n - reach), 1);
  const high = Math.min(Math.ceil(0.5 * n + 1 + reach), n);
  const median = (ordered[(n - 1) >> 1] + ordered[n >> 1]) / 2;
  return median === 0 ? null : (ordered[high - 1] - ordered[low - 1]) / 2 / median;
}

export function checkPoints(minRuns, maxSamples) {
  const points = [];
  for (let point = Math.max(minRuns, 1); point < maxSamples; point = Math.ceil(point * GROWTH)) {
    points.push(point);
  }
  return [...points, maxSamples];
}

export function halvesAgree(sums, tolerance) {
  const n = sums.length, half = n >> 1;
  if (half === 0) return false;
  const first = sums[half - 1] / half;
  const second = (sums[n - 1] - sums[n - half - 1]) / half;
  return Math.abs(first - second) <= tolerance * Math.min(first, second);
}

export function isEnough(samples, policy) {
  let sum = 0;
  for (const one of samples) sum += one;
  if (sum < policy.min_observed_s * 1000) return false;
  const width = medianHalfWidth(samples);
  return width !== null && width < policy.half_width;
}

// The smallest step of the clock; browsers make it coarse, more so without isolation.
export function clockStep(clock) {
  let least = Infinity;
  const end = clock() + STEP_SEARCH_MS;
  for (let last = clock(), now = last; now < end; now = clock()) {
    if (now !== last) least = Math.min(least, now - last);
    last = now;
  }
  return Number.isFinite(least) ? least : STEP_SEARCH_MS;
}

// How many runs one sample is the mean of; the least of some tries, because a single one can be slow.
export async function runsPerSample(step, clock, stepMs) {
  for (let runs = 1; ; runs *= 2) {
    let least = Infinity;
    for (let trial = 0; trial < TRIALS; trial += 1) {
      const start = clock();
      for (let run = 0; run < runs; run += 1) await step();
      least = Math.min(least, clock() - start);
    }
    if (least >= STEPS_PER_SAMPLE * stepMs) return runs;
  }
}

class Window {
  runs = 0; sums = []; total = 0; stride = 1;
  add(ms) {
    this.runs += 1;
    this.total += ms;
    if (this.runs % this.stride === 0) this.sums.push(this.total);
    if (this.sums.length === MAX_SUMS) {
      this.sums = this.sums.filter((_, index) => index % 2 === 1);
      this.stride *= 2;
    }
  }
}

export async function warmUp(step, clock, policy) {
  const begin = clock();
  let windowBegin = begin, window = new Window();
  for (let runs = 1; ; runs += 1) {
    const start = clock();
    await step();
    const end = clock();
    window.add(end - start);
    const seconds = (end - windowBegin) / 1000;
    const isLongEnough = window.runs >= policy.min_warmup_runs && seconds >= policy.min_warmup_s;
    const isStable = isLongEnough && halvesAgree(window.sums, policy.warmup_tolerance);
    if (isStable || end - begin >= policy.max_warmup_s * 1000) return { ms: end - begin, runs, isStable };
    if (window.runs >= 2 * policy.min_warmup_runs && seconds >= 2 * policy.min_warmup_s) {
      window = new Window();
      windowBegin = end;
    }
  }
}

// Samples in order, each the mean of `perSample` runs, and why they ended.
export async function timeRuns(step, clock, policy, perSample) {
  const points = checkPoints(policy.min_runs, policy.max_samples);
  const samples = new Float64Array(points.at(-1));
  const deadline = clock() + policy.max_time_s * 1000;
  let count = 0;
  for (const point of points) {
    while (count < point) {
      const start = clock();
      for (let run = 0; run < perSample; run += 1) await step();
      const stop = clock();
      samples[count] = (stop - start) / perSample;
      count += 1;
      if (stop >= deadline && count < point) {
        return { samples: samples.subarray(0, count), reason: "max_time" };
      }
    }
    if (isEnough(samples.subarray(0, count), policy)) {
      return { samples: samples.subarray(0, count), reason: "half_width" };
    }
  }
  return { samples, reason: "max_samples" };
}
