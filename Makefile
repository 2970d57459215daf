# Plain `make` lists the commands. Every one of them works from a bare checkout: it makes .venv first if need be.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Compiled bytecode is what makes a start quick; some machines switch it off for all of Python.
unexport PYTHONDONTWRITEBYTECODE
# An interpreter's settings from outside would reach into .venv.
unexport PYTHONHOME
unexport PYTHONPATH

PY := .venv/bin/python
PACKAGES := .venv/.packages
PROJECT := .venv/.project
CLASSES := .venv/.spark-classes.jsa

# The core tiers need neither Spark nor a child process. The others start both, and wait for them now and then: on two
# cores, three files at a time; tests/support/distribution.py says which come first, and which share a JVM.
# One after another: make test SLOW_WORKERS=0
CORE_TIERS := unit property contract
CORE_WORKERS ?= 2
SLOW_WORKERS ?= 3
# More for pytest, for instance: make test PYTEST="-x -k fold"
PYTEST ?=

has_tests = $(shell find $(1) -name 'test_*.py' -print -quit 2>/dev/null)
CORE_PATHS := $(wildcard $(CORE_TIERS:%=tests/%))
CORE_TESTS := $(if $(CORE_PATHS),$(call has_tests,$(CORE_PATHS)))
SLOW_TESTS := $(call has_tests,tests $(CORE_TIERS:%=-path tests/% -prune -o))

.PHONY: help demo test test-core test-slow check bench serve format lock clean setup java

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup java ## Run the demonstration, from nothing to results
	@.venv/bin/servo demo

test: setup java ## Run all that CI runs: check and the core tiers beside each other, then the others
	@$(if $(CORE_TESTS)$(SLOW_TESTS),:,echo "servo: there are no tests under tests/" >&2; exit 1)
	@$(MAKE) -j 2 --output-sync=target check $(if $(CORE_TESTS),test-core)
	@$(if $(SLOW_TESTS),$(MAKE) test-slow)

test-core: setup ## Run the quick tiers only: unit, property, contract
	@$(PY) -m pytest $(CORE_PATHS) -n $(CORE_WORKERS) --dist loadgroup --durations 5 $(PYTEST)

test-slow: setup java ## Run the other tiers only: Spark, PostgreSQL, the command line, simulation, chaos
	@$(MAKE) $(CLASSES) || echo "servo: Spark's classes are not shared among tests, which take longer" >&2
	@$(PY) -m pytest tests $(CORE_TIERS:%=--ignore tests/%) -n $(SLOW_WORKERS) --dist loadfile --no-loadscope-reorder \
	  --durations 15 $(PYTEST)

check: setup ## Check format, lint, types and layers
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-cache

format: setup ## Format the code and mend what lint can mend
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

bench: setup java ## Measure what is quick to measure, one JSON line for each figure; everything with ALL=1
	@$(PY) -m bench $(if $(ALL),--all) $(ONLY)

serve: setup java ## Serve the API and the console
	@if .venv/bin/servo up --help >/dev/null 2>&1; then exec .venv/bin/servo up; \
	else echo "servo: this version has no 'servo up' yet; 'make demo' shows what it has" >&2; exit 1; fi

lock: setup ## Pin the newest packages that pyproject.toml allows
	@scripts/lock

clean: ## Remove .venv and all that tools, tests and Spark left
	@rm -rf .venv .servo/demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
	  build dist bench/out bench/results spark-warehouse metastore_db derby.log artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(PROJECT)

java:
	@scripts/ensure-java

$(PACKAGES): requirements-dev.txt scripts/set-up
	@scripts/set-up
	@touch $@

$(CLASSES): $(PACKAGES) scripts/share-classes
	@scripts/share-classes $@

$(PROJECT): $(PACKAGES) pyproject.toml
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(PY) -m compileall -q src
	@touch $@
