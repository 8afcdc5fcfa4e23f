# One word per chore. Every target sets up what it needs; a second call finds it done.
#
#   make serve    the dashboard on http://localhost:8501
#   make check    formatting, lint, types, layers, and the tests that are fast: a minute
#   make test     every check and every test, the real-browser ones included
#   make long     thousands of draws of what the tests draw a few of, 50 times as many: an hour
#   make docs     the made parts of the documents, after a change of what they are made from
#   make picture  the picture of the README, from the running dashboard
#   make golden   the presets' golden figures, after a change that is meant to move them
#   make shipped  the runs that come with the project, at a release or after a change of the engine
#   make lock     the pins with the hashes of their files, after a change of a pin
#   make audit    known faults of what is pinned, and what could not be looked up
#   make bench    the benchmarks: reported, not asserted
#   make clean    forget the environment and every cached file, keep data/twin.db

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
DRAWS ?= 50
# Tests that share a dashboard, or a file, share a process: tests/conftest.py.
SHARED := --dist loadfile
UV := 0.13.9
# Rooms whose tests need neither a compiler nor a browser, but for those that say `compiled`.
FAST := tests/test_house.py tests/test_facts.py tests/kernels/test_rng.py tests/scenario tests/metrics \
	tests/model tests/policies tests/workload
PIP = $(BIN)/python -m pip install -qq --disable-pip-version-check
# The first interpreter that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v "$$p" && break; done)

# Every test process, and every process that a test starts, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve check test long tests.picture golden shipped lock audit bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

serve: $(VENV)/.compiled
	$(BIN)/python -m streamlit run app.py

check: static
	$(BIN)/python -m pytest -q -n $(JOBS) $(SHARED) $(FAST) -k "not compiled"

test: static $(VENV)/.compiled
	$(BIN)/python -m tests.chromium --install
	$(BIN)/python -m tests.axe --install
	$(BIN)/python -m pytest -n $(JOBS) $(SHARED)

long: $(VENV)/.dev
	TWIN_DRAWS=$(DRAWS) $(BIN)/python -m pytest -n $(JOBS) $(SHARED) -m "long or hypothesis"

.PHONY: static
static: $(VENV)/.dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

docs: $(VENV)/.runtime
	$(BIN)/python -m docs.make

picture: $(VENV)/.dev
	$(BIN)/python -m tests.chromium --install
	$(BIN)/python -m tests.picture

golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden.test_presets

shipped: $(VENV)/.runtime
	$(BIN)/python -m twin.lab.share.shipped

bench: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only \
		-o python_files='bench_*.py' -o python_functions='bench_*' \
		--benchmark-columns=median,rounds --benchmark-sort=name

# After a change of a pin: what is installed, with the hash of every file it may come from.
lock: $(BIN)/python
	@$(PIP) uv==$(UV)
	@for set in requirements requirements-dev; do $(BIN)/uv pip compile -q --universal \
		--python-version 3.11 --generate-hashes --no-header --no-annotate $$set.txt -o $$set.lock; done

audit: $(BIN)/python
	@$(PIP) pip-audit==2.10.1
	$(BIN)/pip-audit --disable-pip -r requirements-dev.lock

clean:
	rm -rf $(VENV) .numba_cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up, by stamp files: a changed pin is installed on the next call of any target.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory venv-module
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.lock | $(BIN)/python
	@echo "Installing what the twin needs into $(VENV): a few hundred MB, once, in one to three minutes."
	@$(PIP) --require-hashes -r requirements.lock
	@touch $@

# The last step of setting up, so that no first visitor waits for a compiler; where it fails, the
# first run does it.
$(VENV)/.compiled: $(VENV)/.runtime
	@echo "Compiling what runs are computed with: once, in two to five minutes."
	@if $(BIN)/python -m twin warm; then touch $@; \
	else echo "It could not be compiled here: the first run will try again."; fi

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo "Installing what checks and tests need too: once, in half a minute."
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

# Debian ships Python without its venv module.
.PHONY: venv-module
venv-module:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get update -qq && apt-get install -y -qq python3-venv; \
	else echo "$(PYTHON) lacks its venv module (on Debian: apt-get install python3-venv)"; exit 1; fi
