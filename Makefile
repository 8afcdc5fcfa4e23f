# One word per chore. Every target sets up what it needs; a second call finds it done.
#
#   make serve   the dashboard on http://localhost:8501
#   make test    every check and every test, the real-browser ones included
#   make check   formatting, lint, types, layers
#   make docs    the tables that are made: fields, presets, files
#   make golden  the presets' golden figures, after a change that is meant to move them
#   make bench   the benchmarks: reported, not asserted
#   make clean   forget the environment and every cached file, keep data/twin.db

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# The first interpreter that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v "$$p" && break; done)

.PHONY: help serve test check docs golden bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

serve: $(VENV)/.runtime
	$(BIN)/python -m streamlit run app.py

check: $(VENV)/.dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m tests.chromium --install
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

docs: $(VENV)/.runtime
	$(BIN)/python -m twin.lab.documents

golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden.test_presets

bench: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only \
		-o python_files='bench_*.py' -o python_functions='bench_*' \
		--benchmark-columns=median,rounds --benchmark-sort=name

clean:
	rm -rf $(VENV) .numba_cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up, by stamp files: a changed pin is installed on the next call of any target.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory venv-module
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

# Debian ships Python without its venv module.
.PHONY: venv-module
venv-module:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get update -qq && apt-get install -y -qq python3-venv; \
	else echo "$(PYTHON) lacks its venv module (on Debian: apt-get install python3-venv)"; exit 1; fi
