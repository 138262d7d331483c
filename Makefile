# make demo    a real model answers          make test    all tests
# make lint    linters, types, imports       make docs    regenerate the references
# make bench   measures this machine
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# An index to take torch from, for instance one with CPU builds (the README says why).
TORCH_INDEX ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
PLUGINS := $(wildcard plugins/*/*)
# What is compiled when it is installed, and so must be installed again after a change.
NATIVE := $(wildcard plugins/*/*/build_native.py $(addprefix plugins/*/*/csrc/,*.h *.cpp */*.h */*.cpp))
# Many tests wait for other processes: two workers keep two cores busy.
WORKERS ?= 2
# Plugin packages that are written as strangers would, and those that were built against a frozen contract: the newest set with
# them, each earlier one in a run of its own, because all sets have packages of the same names.
FROZEN := $(sort $(wildcard tests/frozen/v*))
STRANGERS := $(patsubst %/plugin.toml,%,$(wildcard $(addsuffix /*/plugin.toml,\
	tests/third_party/* tests/third_party/*/src $(lastword $(FROZEN))/src/*)))
PROMPT ?= In one sentence: what is a jackfield?

# Flags of `make bench`, for instance BENCH="--dtype float32 --threads 4".
BENCH ?= --dtype bfloat16

.PHONY: setup demo bench test test-plugins lint format docs compatibility clients contract requirements soak clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml requirements.txt constraints.txt $(wildcard plugins/*/*/pyproject.toml) $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Jackfield needs Python 3.11 or newer; try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP) install --constraint constraints.txt --index-url $(TORCH_INDEX) torch)
	$(PIP) install --quiet hatchling editables
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --requirement requirements.txt --editable '.[dev]'
	touch $@

demo: setup
	@$(BIN)/jackfield explain --worker torch
	@echo
	@$(BIN)/jackfield generate --chat --temperature 0 --max-new-tokens 60 "$(PROMPT)"

# The workloads of docs/benchmarking.md on this machine, one after the other; the documents are in build/bench.
bench: setup
	mkdir -p build/bench
	for workload in first decode prefill batch prefix; do \
		$(BIN)/jackfield bench offline --workload $$workload $(BENCH) --json build/bench/$$workload.json || exit 1; done

test: setup
	@# The hundreds of processes that tests start need not compile the sources again, where Python may not write what it compiled.
	$(BIN)/python -m compileall -q core plugins
	$(BIN)/python -m pytest -q --numprocesses $(WORKERS)

# Strangers' packages (tests/third_party) alone: their own tests and the conformance suites, where they are installed from wheels.
test-plugins: setup
	$(BIN)/python -m pytest -q tests/third_party/test_suites.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/new_packages.py build/new
	MYPYPATH=core:tests/contract/stubs:$$(echo $(PLUGINS) $(dir $(STRANGERS)) build/new/* | tr ' ' ':') $(BIN)/mypy \
		core $(wildcard plugins/*/*/jackfield_*) docs/reference/hook_examples.py $(STRANGERS) build/new/*/my_own_*
	$(foreach set,$(filter-out $(lastword $(FROZEN)),$(FROZEN)),\
		MYPYPATH=core:$$(echo $(set)/src/* | tr ' ' ':') $(BIN)/mypy $(patsubst %/plugin.toml,%,$(wildcard $(set)/src/*/*/plugin.toml)) &&) true
	$(BIN)/lint-imports
	$(BIN)/python .ci/requirements.py --check
	$(BIN)/python docs/generate.py --check

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/python docs/generate.py

# Record the contract of each kind under its version, after the version was raised (docs/versioning.md).
contract: setup
	$(BIN)/python -m tests.contract.record

# Which plugins pass which checks and run with which others; docs/reference/compatibility.md is made of it. Takes some minutes.
compatibility: setup
	$(BIN)/python .ci/compatibility.py
	$(BIN)/python docs/generate.py

# Runs every client of tests/e2e/clients, the large ones too; docs/reference/clients.md is made of what worked.
clients: setup
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev,clients]'
	$(BIN)/python -m pytest -q -p tests.e2e.clients.record tests/e2e/clients
	$(BIN)/python docs/generate.py

requirements:
	$(PYTHON) .ci/requirements.py

# The long forms of the randomised tests, 100,000 scheduler steps and more among them (the last line counts); the test suite
# runs a tenth.
soak: setup
	$(BIN)/python -m pytest -q -m soak --soak-factor 10

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
