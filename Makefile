# make setup   set up .venv for everything, compiled kernels included
# make train   set up .venv for training, then pretrain, fine-tune, evaluate and film two agents on the shipped data
# make test    set up .venv for everything, then linter, formatter check, type check and tests
# make test-bounds   tests of the kernels, each index checked (3 minutes)
# make test-generic  the physics compiled for any x86-64 processor gives the same bits (a minute, compilation)
# make wasm          compile the kernels to WebAssembly: nppsim/wasm/*.wasm (needs wasm-ld, Debian package lld; 4 minutes)
# make test-wasm     compare the WebAssembly kernels with native ones on many levels, and with a new build (Node.js, Chromium)
# make coverage      lines of physics, paths and observations that their tests reach, as plain Python (2 minutes)
# make mutation   mutations of the code, each of which a test must notice (8 minutes)
# make fuzz       damaged files for every reader (an hour)
# make chaos      full disks, kills and other faults of the machine for every command (two hours)
# make docs          the documentation site in build/site, without a network; warnings are errors
# make lint, make format, make bench, make clean   checks, formatting, speed against the baseline, removal of .venv and caches
# PyTorch comes without CUDA (5 GB less) where no NVIDIA GPU is found; other builds: make train PIP_ARGS="--extra-index-url URL"
# All work on a fresh machine with Python 3.11 or newer; the set-up runs again only when pyproject.toml or
# constraints.txt change.  Other settings for the main job: make train ARGS="--architectures vision_free ..."

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup train test kernels test-bounds test-generic wasm test-wasm coverage mutation fuzz chaos docs lint lint-javascript \
	format bench clean

PYTHON := .venv/bin/python
SIMULATOR := .venv/installed-simulator
TRAINING := .venv/installed-train
EVERYTHING := .venv/installed
CPU_TORCH := https://download.pytorch.org/whl/cpu

TRAIN := $(PYTHON) scripts/train_and_compare.py
IMAGES := --experiment-name images --architectures mlp_baseline \
	--teacher datasets/agents/vision_free_foresight.safetensors --teacher-minutes 5 --teacher-decisions 4000000 --deterministic-eval
PYTEST_ARGS ?=
PIP_ARGS ?=
PHYSICS_TESTS := tests/nppsim/physics tests/nppsim/observe tests/nppsim/test_verify.py tests/nppsim/test_paths.py
KERNEL_TESTS := $(PHYSICS_TESTS) tests/nppsim/planner tests/nppsim/shadow tests/nppsim/measure/test_bench.py \
	tests/rl/ppo/test_vec_env.py tests/nppsim/gym/test_env.py tests/nppsim/test_batch.py tests/nppsim/test_reward.py \
	tests/fuzz/test_levels.py
WASM_TESTS := tests/nppsim/wasm tests/rl/studio/test_policy_file.py tests/nppsim/studio/test_page_documents.py
# Large pages for large arrays: a third more samples per second in training on images (glibc, Linux only).
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1
# Bytecode is stored, also where the environment turns that off: the set-up compiles none, and each process that imports
# PyTorch would translate its sources again, 3 of 6 seconds.
export PYTHONDONTWRITEBYTECODE :=

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -16

# Kernels need only the simulator's few packages, so they compile while pip installs the others.
setup:
	@$(MAKE) --no-print-directory --jobs 2 $(EVERYTHING) kernels

train: $(TRAINING)
ifdef ARGS
	$(TRAIN) $(ARGS)
else
	$(TRAIN) --recipe quickstart
	$(TRAIN) --recipe quickstart $(IMAGES)
endif

test:
	@$(MAKE) --no-print-directory --jobs 2 lint kernels
	# Three processes on two cores, because tests wait for other processes and the browser a third of the time.
	$(PYTHON) -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

kernels: $(SIMULATOR)
	PYTHONPATH=. $(PYTHON) tests/support/kernels.py

test-bounds: $(EVERYTHING)
	NUMBA_BOUNDSCHECK=1 $(PYTHON) -m pytest $(KERNEL_TESTS) $(PYTEST_ARGS)

test-generic: $(EVERYTHING)
	NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= $(PYTHON) -m pytest tests/nppsim/physics/test_bits.py tests/nppsim/physics/test_trigonometry.py $(PYTEST_ARGS)

wasm: $(SIMULATOR)
	$(PYTHON) -m nppsim.wasm

test-wasm: $(EVERYTHING)
	NPPSIM_WASM_LEVELS=200 NPPSIM_WASM_BUILD=1 $(PYTHON) -m pytest $(WASM_TESTS) $(PYTEST_ARGS)
	NPPSIM_WASM_LEVELS=200 NPPSIM_WASM_ENGINE=chromium $(PYTHON) -m pytest $(WASM_TESTS) $(PYTEST_ARGS)

coverage: $(EVERYTHING)
	NUMBA_DISABLE_JIT=1 $(PYTHON) -m coverage run -m pytest $(PHYSICS_TESTS) $(PYTEST_ARGS)
	$(PYTHON) -m coverage report

mutation: $(EVERYTHING)
	$(PYTHON) -m pytest tests/mutation $(PYTEST_ARGS)
	$(PYTHON) -m tests.mutation

fuzz: $(EVERYTHING)
	FUZZ_CASES=100000 $(PYTHON) -m pytest tests/fuzz $(PYTEST_ARGS)

chaos: $(EVERYTHING)
	$(PYTHON) -m pytest tests/chaos $(PYTEST_ARGS)

docs: $(EVERYTHING)
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

lint: $(EVERYTHING) lint-javascript
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

ifeq ($(shell command -v npm),)
lint-javascript:
	@echo "npm is not installed: the JavaScript is not checked"
else
lint-javascript: node_modules/.package-lock.json
	node_modules/.bin/eslint .
	node_modules/.bin/tsc --project jsconfig.json
endif

format: $(EVERYTHING)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: $(TRAINING)
	$(PYTHON) -m nppsim bench --baseline benchmarks/results/bench.json

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --no-audit --no-fund

# Remove the environment, builds and caches, but not results in experiments/.
clean:
	rm -rf .venv node_modules build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@if python3.11 -c "import ensurepip, venv" 2>/dev/null; then python=python3.11; \
	elif python3 -c "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then \
		python=python3; \
	else \
		echo "error: Python 3.11 or newer is needed, with its venv module; python3 here is:" \
			"$$(python3 --version 2>&1 || true). Install Python 3.11 (Debian: apt-get install python3.11-venv)" >&2; \
		exit 1; \
	fi; \
	$$python -m venv .venv

# Without --no-compile, pip would translate 18,000 files to bytecode, of which Python needs a fraction: a third of the set-up.
INSTALL = $(PYTHON) -m pip install --disable-pip-version-check --no-compile

# Install the project with EXTRAS; where there is no GPU, PyTorch without CUDA first.
define install
	@if test -z "$(PIP_ARGS)" && test "$$(uname -s)" = Linux && ! test -e /dev/nvidiactl && ! command -v nvidia-smi; then \
		$(INSTALL) --retries 0 --timeout 15 --extra-index-url $(CPU_TORCH) \
			-c constraints.txt torch || echo "no PyTorch from $(CPU_TORCH): installing PyTorch from the default index"; \
	fi
	$(INSTALL) $(PIP_ARGS) -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@
endef

$(SIMULATOR): pyproject.toml constraints.txt | $(PYTHON)
	$(INSTALL) $(PIP_ARGS) -c constraints.txt -e .
	@touch $@

$(TRAINING): EXTRAS := train,video
$(TRAINING): pyproject.toml constraints.txt | $(PYTHON)
	$(install)

$(EVERYTHING): EXTRAS := train,video,s3,studio,dev
$(EVERYTHING): pyproject.toml constraints.txt | $(SIMULATOR)
	$(install)
	@touch $(TRAINING)
