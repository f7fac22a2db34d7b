// Measures one ONNX file in ONNX Runtime on a phone; `ort_runner.py` calls it and reads its text.
//
// ort_runner model=FILE inputs=FILE outputs=FILE provider=cpu|xnnpack|nnapi threads=N
//     [session.ENTRY=VALUE] warmup_runs=N warmup_s=S max_warmup_s=S runs=N observed_s=S max_s=S
//     max_runs=N least_s=S
//
// A file of tensors has for each tensor, in int64: its ONNX type, number of sizes, the sizes and
// the number of bytes; then the bytes. The first case of `inputs` is timed. The outputs of the
// others, which follow it, are written to `outputs`.
//
// It needs libonnxruntime.so 1.24 or newer beside it, found by LD_LIBRARY_PATH.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "onnxruntime_c_api.h"

#define API_VERSION 24  // the first with Session_GetEpGraphAssignmentInfo
#define MOST_SIZES 64
#define MOST_BYTES ((int64_t)1 << 32)
#define CHECK(call) check((call), #call)

static const OrtApi* ort;
static OrtSession* session;
static OrtAllocator* allocator;
static OrtMemoryInfo* memory;
static size_t n_inputs, n_outputs;
static char **input_names, **output_names;
static OrtValue **inputs, **outputs;
static int n_words;
static char** words;

static void fail(const char* what, const char* why) {
  printf("failed %s: %s\n", what, why);
  exit(1);
}

static void check(OrtStatus* status, const char* call) {
  if (status != NULL) fail(call, ort->GetErrorMessage(status));
}

static const char* text_of(const char* name) {
  size_t length = strlen(name);
  for (int i = 1; i < n_words; i++)
    if (strncmp(words[i], name, length) == 0 && words[i][length] == '=') return words[i] + length + 1;
  fail(name, "is not given");
  return NULL;
}

static int64_t number_of(const char* name) { return atoll(text_of(name)); }

static int64_t ns_of(const char* name) { return (int64_t)(atof(text_of(name)) * 1e9); }

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

// Resident set now (VmRSS), or its peak (VmHWM), of this process.
static long long resident_kib(const char* name) {
  char line[256];
  long long kib = -1;
  FILE* file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, strlen(name)) == 0) kib = atoll(line + strlen(name) + 1);
  if (file != NULL) fclose(file);
  return kib;
}

static void* room(size_t n_bytes) {
  void* found = calloc(1, n_bytes + 1);
  if (found == NULL) fail("calloc", "out of memory");
  return found;
}

static int read_tensor(FILE* file, OrtValue** value) {
  int64_t head[2], sizes[MOST_SIZES], n_bytes = -1;
  if (fread(head, sizeof head, 1, file) != 1) return 0;
  int has_sizes = head[1] >= 0 && head[1] <= MOST_SIZES &&
                  fread(sizes, sizeof *sizes, head[1], file) == (size_t)head[1] &&
                  fread(&n_bytes, sizeof n_bytes, 1, file) == 1;
  if (!has_sizes || n_bytes < 0 || n_bytes > MOST_BYTES) fail("inputs", "the file is cut off");
  void* data = room(n_bytes);
  if (fread(data, 1, n_bytes, file) != (size_t)n_bytes) fail("inputs", "the file is cut off");
  CHECK(ort->CreateTensorWithDataAsOrtValue(memory, data, n_bytes, sizes, head[1], head[0], value));
  return 1;
}

static int read_case(FILE* file) {
  for (size_t i = 0; i < n_inputs; i++) {
    void* old = NULL;
    if (inputs[i] != NULL) CHECK(ort->GetTensorMutableData(inputs[i], &old));
    ort->ReleaseValue(inputs[i]);
    inputs[i] = NULL;
    free(old);
    if (!read_tensor(file, &inputs[i])) return 0;
  }
  return 1;
}

static void write_outputs(FILE* file) {
  for (size_t i = 0; i < n_outputs; i++) {
    OrtTensorTypeAndShapeInfo* info;
    ONNXTensorElementDataType type;
    size_t rank, n_bytes;
    int64_t head[MOST_SIZES + 3];
    void* data;
    CHECK(ort->GetTensorTypeAndShape(outputs[i], &info));
    CHECK(ort->GetTensorElementType(info, &type));
    CHECK(ort->GetDimensionsCount(info, &rank));
    if (rank > MOST_SIZES) fail("outputs", "too many sizes");
    CHECK(ort->GetDimensions(info, head + 2, rank));
    CHECK(ort->GetTensorSizeInBytes(outputs[i], &n_bytes));
    CHECK(ort->GetTensorMutableData(outputs[i], &data));
    head[0] = type, head[1] = rank, head[2 + rank] = n_bytes;
    int is_written = fwrite(head, sizeof *head, rank + 3, file) == rank + 3 &&
                     fwrite(data, 1, n_bytes, file) == n_bytes;
    if (!is_written) fail("outputs", "cannot be written");
    ort->ReleaseTensorTypeAndShapeInfo(info);
  }
}

// One inference. The last outputs are freed first, as in the runner of a host.
static int64_t run_ns(void) {
  int64_t start = now_ns();
  for (size_t i = 0; i < n_outputs; i++) {
    ort->ReleaseValue(outputs[i]);
    outputs[i] = NULL;
  }
  CHECK(ort->Run(session, NULL, (const char* const*)input_names, (const OrtValue* const*)inputs,
                 n_inputs, (const char* const*)output_names, n_outputs, outputs));
  return now_ns() - start;
}

static void add_provider(OrtSessionOptions* options, void* library) {
  const char* provider = text_of("provider");
  const char *key = "intra_op_num_threads", *threads = text_of("threads");
  OrtStatus* (*add_nnapi)(OrtSessionOptions*, uint32_t);
  if (strcmp(provider, "xnnpack") == 0) {
    CHECK(ort->SessionOptionsAppendExecutionProvider(options, "XNNPACK", &key, &threads, 1));
  } else if (strcmp(provider, "nnapi") == 0) {
    *(void**)&add_nnapi = dlsym(library, "OrtSessionOptionsAppendExecutionProvider_Nnapi");
    if (add_nnapi == NULL) fail("nnapi", "is not supported in this build");
    CHECK(add_nnapi(options, 0));
  } else if (strcmp(provider, "cpu") != 0) {
    fail(provider, "is not supported in this build");
  }
}

static void open_session(OrtEnv* env, void* library) {
  OrtSessionOptions* options;
  CHECK(ort->CreateSessionOptions(&options));
  CHECK(ort->SetIntraOpNumThreads(options, number_of("threads")));
  CHECK(ort->SetInterOpNumThreads(options, 1));
  CHECK(ort->SetSessionGraphOptimizationLevel(options, ORT_ENABLE_ALL));
  for (int i = 1; i < n_words; i++) {
    char entry[256];
    const char* value = strchr(words[i], '=');
    if (strncmp(words[i], "session.", 8) != 0 || value == NULL) continue;
    if (value - words[i] >= (long)sizeof entry) fail("session", "the name of an entry is too long");
    memcpy(entry, words[i], value - words[i]);
    entry[value - words[i]] = '\0';
    CHECK(ort->AddSessionConfigEntry(options, entry, value + 1));
  }
  CHECK(ort->AddSessionConfigEntry(options, "session.record_ep_graph_assignment_info", "1"));
  add_provider(options, library);
  CHECK(ort->CreateSession(env, text_of("model"), options, &session));
  CHECK(ort->SessionGetInputCount(session, &n_inputs));
  CHECK(ort->SessionGetOutputCount(session, &n_outputs));
  input_names = room(n_inputs * sizeof *input_names), inputs = room(n_inputs * sizeof *inputs);
  output_names = room(n_outputs * sizeof *output_names), outputs = room(n_outputs * sizeof *outputs);
  for (size_t i = 0; i < n_inputs; i++)
    CHECK(ort->SessionGetInputName(session, i, allocator, &input_names[i]));
  for (size_t i = 0; i < n_outputs; i++)
    CHECK(ort->SessionGetOutputName(session, i, allocator, &output_names[i]));
}

static void print_placement(void) {
  const OrtEpAssignedSubgraph* const* parts;
  size_t n_parts;
  CHECK(ort->Session_GetEpGraphAssignmentInfo(session, &parts, &n_parts));
  for (size_t i = 0; i < n_parts; i++) {
    const OrtEpAssignedNode* const* nodes;
    const char* name;
    size_t n_nodes;
    CHECK(ort->EpAssignedSubgraph_GetEpName(parts[i], &name));
    CHECK(ort->EpAssignedSubgraph_GetNodes(parts[i], &nodes, &n_nodes));
    printf("nodes %s %zu\n", name, n_nodes);
  }
}

static void warm_up(void) {
  int64_t n_runs = number_of("warmup_runs"), least = ns_of("warmup_s"), most = ns_of("max_warmup_s");
  int64_t n = 0, start = now_ns(), spent = 0;
  while ((n < n_runs || spent < least) && spent < most) {
    run_ns();
    n++;
    spent = now_ns() - start;
  }
  printf("warmup %lld %lld\n", (long long)n, (long long)spent);
}

// With least_s > 0 the runs last so long; else they end when there are enough, or too many.
static void time_runs(void) {
  int64_t least_runs = number_of("runs"), observed = ns_of("observed_s"), most = ns_of("max_s");
  int64_t max_runs = number_of("max_runs"), sustained = ns_of("least_s"), size = 1 << 16, n = 0;
  int64_t *samples = room(size * sizeof *samples), start = now_ns(), spent = 0;
  while (sustained > 0 ? spent < sustained || n == 0
                       : (n < least_runs || spent < observed) && (spent < most || n == 0) && n < max_runs) {
    if (n == size && (samples = realloc(samples, (size *= 2) * sizeof *samples)) == NULL)
      fail("realloc", "out of memory");
    samples[n++] = run_ns();
    spent = now_ns() - start;
  }
  for (int64_t i = 0; i < n; i++) printf("sample %lld\n", (long long)samples[i]);
  printf("timed %lld %lld\n", (long long)n, (long long)spent);
}

int main(int argc, char** argv) {
  OrtEnv* env;
  n_words = argc, words = argv;
  void* library = dlopen("libonnxruntime.so", RTLD_NOW);
  if (library == NULL) fail("dlopen", dlerror());
  setenv("ORT_DISABLE_TELEMETRY", "1", 1);  // its thread reports models to its maker
  const OrtApiBase* (*base)(void);
  *(void**)&base = dlsym(library, "OrtGetApiBase");
  if (base == NULL) fail("OrtGetApiBase", "is missing in libonnxruntime.so");
  printf("ort_runner 1\nruntime %s\n", base()->GetVersionString());
  ort = base()->GetApi(API_VERSION);
  if (ort == NULL) fail("GetApi", "libonnxruntime.so is older than 1.24");
  CHECK(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "ort_runner", &env));
  CHECK(ort->GetAllocatorWithDefaultOptions(&allocator));
  CHECK(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  FILE *from = fopen(text_of("inputs"), "rb"), *to = fopen(text_of("outputs"), "wb");
  if (from == NULL || to == NULL) fail("fopen", "inputs or outputs cannot be opened");
  long long baseline = resident_kib("VmRSS");
  int64_t start = now_ns();
  open_session(env, library);
  printf("load_ns %lld\n", (long long)(now_ns() - start));
  print_placement();
  if (!read_case(from)) fail("inputs", "the file is cut off");
  printf("first_ns %lld\n", (long long)run_ns());
  long long loaded = resident_kib("VmHWM");
  warm_up();
  printf("memory_kib %lld %lld %lld\n", baseline, loaded, resident_kib("VmHWM"));
  time_runs();
  while (read_case(from)) {
    run_ns();
    write_outputs(to);
  }
  if (fclose(to) != 0) fail("outputs", "cannot be written");
  printf("done\n");
  return 0;
}

#ifdef WITHOUT_NDK
// The start of a program where no Android NDK is at hand: bionic calls main.
extern void __libc_init(void*, void (*)(void), int (*)(int, char**), const void*);

void start(void* arguments) {
  static void* const no_arrays[4];
  __libc_init(arguments, NULL, main, no_arrays);
}

#ifdef __aarch64__
__asm__(".globl _start\n_start: mov x0, sp\n b start\n");
#else
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start\n");
#endif
#endif
