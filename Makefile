# Every target works on a fresh machine with Python 3.11, 3.12 or 3.13 (venv, pip), git and make.
# A new .venv takes the newest that runs and that every library has a file for; PYTHON=... names one.
PYTHONS := $(or $(PYTHON),python3.13 python3.12 python3.11)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A Ray worker hands its niceness to the measuring process, which cannot lower it again.
export RAY_worker_niceness := 0

.DEFAULT_GOAL := help
.PHONY: browser-assets help setup link sweep unit test test-all test-pythons test-cluster test-gpu ort-runner android-root fuzz check bench docs \
  clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## make .venv with the command in .venv/bin/fleetrank

# The folders of the checkout under their import name, as the installed package has them: type
# checker, import linter and editors follow links, and no module is found under two names.
PACKAGES := analysis device_agents foundation models orchestrator
define link_package
	@folder=$$(echo $(1))/fleetrank && mkdir -p $$folder && ln -sfn \
	  $(foreach name,$(PACKAGES) $(wildcard orchestrator/public/*.*),$(CURDIR)/$(name)) $$folder/
endef

# A name on the path need not be a Python: pyenv's say "command not found", Debian's lack venv at first.
RUNS = -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
INSTALL := pip install --quiet --constraint constraints.txt --editable

$(STAMP): pyproject.toml setup.py constraints.txt
	@[ ! -x $(BIN)/python ] || exec $(BIN)/$(INSTALL) '.[all,dev]'; \
	for python in $(PYTHONS); do \
	  $$python $(RUNS) || continue; \
	  echo "installing into $(VENV) with $$($$python --version): up to 9 GB, some minutes"; \
	  $$python -m venv --clear $(VENV) && $(BIN)/$(INSTALL) '.[all,dev]' && exit 0; \
	  echo "not all libraries can be installed for $$python" >&2; rm -rf $(VENV); \
	done; echo "$(VENV) needs one of $(PYTHONS), with venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1
	$(call link_package,$(VENV)/lib/python3*/site-packages)
	@touch $@

browser-assets: setup ## install what pages of browser devices load, with npm; its hashes are pinned
	$(BIN)/python -P -m fleetrank.device_agents.browser.assets

link: ## make build/import, for PYTHONPATH on a machine where nothing can be installed
	$(call link_package,build/import)

sweep: setup ## measure six models in three runtimes beside published results, write results/ and report.html
	$(BIN)/fleetrank results import --from demo >/dev/null
	$(BIN)/fleetrank sweep run sweeps/quick.yaml; code=$$?; \
	case $$code in 0|3) $(BIN)/fleetrank report build --json >/dev/null && echo "page:    report.html" || exit ;; esac; \
	exit $$code

# Without the plug-ins that other packages register: they take two seconds to load.
# With bytecode, even where the environment forbids it: without it every test file is compiled again.
unit: export PYTHONDONTWRITEBYTECODE :=
unit: setup ## run the tests of one edit: no process, no runtime, about 16 s
	$(BIN)/pytest --unit --quiet --disable-plugin-autoload -p xdist.plugin -n 2 --dist worksteal

# One for each of two cores: every further one imports all tests again. Without the plug-ins that other
# packages register, as in `unit`. TESTS="--hold-budget" fails if the tests are too dear.
PYTEST := $(BIN)/pytest --disable-plugin-autoload -p xdist.plugin --numprocesses 2 --dist worksteal --cpu-seconds
# With bytecode, even where the environment forbids it: a process that compiles the product takes 3 s longer.
test test-all test-cluster: export PYTHONDONTWRITEBYTECODE :=
test: setup ## run the tests of daily work: every mechanism at least once, 5 to 12 minutes
	$(PYTEST) $(TESTS)

test-all: setup ## also run what is slow and rarely decides, before a release
	$(PYTEST) --all $(TESTS)

# Without PyTorch, whose files for another Python are gigabytes; EXTRAS=all,test tries it, too.
EXTRAS ?= onnx,server,cluster,android,cuda,test
OTHER = build/$(notdir $(PYTHON))
WITHOUT_TORCH := $(addprefix tests/orchestrator/,cli public) $(addprefix tests/device_agents/,confinement linux worker)
test-pythons: export PYTHONDONTWRITEBYTECODE :=
test-pythons: ## try another Python: `unit`, `run`, `query`, `report build`, with PYTHON=python3.13
	$(or $(PYTHON),$(error PYTHON=python3.13 names the Python)) -m venv $(OTHER)
	$(OTHER)/bin/$(INSTALL) '.[$(EXTRAS)]' ai-edge-litert
	$(OTHER)/bin/pytest --unit --quiet -r s -n 2 --dist worksteal
	$(OTHER)/bin/pytest --all --quiet -r s tests/orchestrator/sweeps/test_other_pythons.py
	$(OTHER)/bin/pytest --quiet -r s -n 2 --dist worksteal $(WITHOUT_TORCH)

# CLUSTER="cluster and not thorough" is the part that continuous integration runs.
CLUSTER ?= cluster
test-cluster: setup ## run the fault matrix on a fleet of hosts made of namespaces (root, iproute2)
	$(BIN)/pytest -m "$(CLUSTER)" -r s tests/cluster

# Without `setup`: a machine with a GPU often has no registry, and PyTorch already.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
test-gpu: link ## run the tests that need an NVIDIA GPU, with pytest, NumPy and the runtimes alone
	PYTHONPATH=$(CURDIR)/build/import $(GPU_PYTHON) -m pytest tests/gpu -m gpu -rsP -W default

# zig has no headers of Android's C library; of those of musl only what is equal in both is used.
# The libraries that are linked are empty ones with Android's names.
ZIG = PYTHONPATH=build/zig $(BIN)/python -m ziglang cc
ZIG_HEADERS = build/zig/ziglang/lib/libc/include
LIBC = __libc_init atof atoll calloc clock_gettime exit fclose fgets fopen fread free fwrite memcpy memset printf \
  realloc setenv strchr strcmp strlen strncmp
LIBDL = dlerror dlopen dlsym
ORT_RUNNER ?= build/ort_runner
build/zig: | $(STAMP)
	$(BIN)/pip install --quiet --target $@ ziglang==0.17.0

define empty_library # target, name, functions
	printf 'void %s(void) {}\n' $(3) | $(ZIG) -target $(1)-linux-android -nostdlib -fno-builtin -w -shared \
	  -Wl,-soname,$(2) -o build/zig/$(1)-$(2) -x c -
endef

define ort_runner # target, ABI
	mkdir -p $(ORT_RUNNER)/$(2)
	$(call empty_library,$(1),libc.so,$(LIBC))
	$(call empty_library,$(1),libdl.so,$(LIBDL))
	$(ZIG) -target $(1)-linux-android -nostdlib -fno-builtin -fno-stack-protector -O2 -Wall -Wextra -fPIE -pie -s \
	  -DWITHOUT_NDK -isystem $(ZIG_HEADERS)/$(1)-linux-musl -isystem $(ZIG_HEADERS)/generic-musl -I build/zig/aar \
	  -Wl,--dynamic-linker=/system/bin/linker64 -Wl,-z,max-page-size=16384 -o $(ORT_RUNNER)/$(2)/ort_runner \
	  device_agents/android/programs/ort_runner.c build/zig/$(1)-libc.so build/zig/$(1)-libdl.so
	unzip -qoj $(AAR) jni/$(2)/libonnxruntime.so -d $(ORT_RUNNER)/$(2)
endef

ort-runner: build/zig ## build our program of ONNX Runtime for phones, with AAR=onnxruntime-android.aar
	unzip -qoj $(or $(AAR),$(error AAR=FILE names ONNX Runtime for Android)) 'headers/*' -d build/zig/aar
	$(call ort_runner,aarch64,arm64-v8a)
	$(call ort_runner,x86_64,x86_64)

ANDROID_ROOT ?= build/android_root
android-root: build/zig ## fetch the root of emulated phones, with ROOTFS= and SCRIPTS=, see docs/edge-devices.md
	mkdir -p $(ANDROID_ROOT)
	$(BIN)/python tests/makers/android_root.py $(ANDROID_ROOT) $(ROOTFS) $(SCRIPTS)
	$(MAKE) ort-runner AAR=$(ANDROID_ROOT)/onnxruntime.aar ORT_RUNNER=$(ANDROID_ROOT)/tools/ort_runner
	printf '' | $(ZIG) -target aarch64-linux-android -nostdlib -shared -Wl,-soname,libandroid.so \
	  -o $(ANDROID_ROOT)/system/lib64/libandroid.so -x c -
	$(ZIG) -O2 -Wall -Wextra -s -shared -fPIC -o $(ANDROID_ROOT)/elf_exec.so tests/phone_farm/elf_exec.c

# A crash is saved under tests/fuzz/found/, where `make test` tries it from then on.
fuzz: export FUZZ_INPUTS ?= 2000
fuzz: setup ## give every parser and file reader 2,000 hostile inputs, FUZZ_INPUTS=N FUZZ="-k TARGET"
	$(PYTEST) tests/fuzz $(FUZZ)

check: setup ## format, lint, types, the layers between packages, plain words, the size of the house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate/plain_words.py
	$(BIN)/python docs/generate/house_size.py

bench: setup ## compare fleetrank with what a user would use instead, as ratios
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/fidelity.py
	$(BIN)/python benchmarks/analysis.py
	$(BIN)/python benchmarks/orchestration.py
	$(BIN)/python benchmarks/server.py

# Material advertises another generator with a warning; it does not concern this site.
docs: export NO_MKDOCS_2_WARNING := 1
docs: setup ## build the documentation into site/, from docs/ and the code
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html; to search in it: $(BIN)/python -m http.server --directory site"

clean: ## remove what was built, .venv included; results/ stays, it cannot be made again
	rm -rf $(VENV) artifacts report.html site
