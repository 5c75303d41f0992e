# Every target says what it does. `make help` lists them. SHARDWRIGHT_* variables reach the programs as they are.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
JOBS ?= 2
RECORD ?=
DATA ?=
URL ?= http://127.0.0.1:8000

export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE ?= copy

.PHONY: help serve install test test-install lint verify bench accuracy lock clean

help: ## list the targets
	@printf 'Shardwright: plans how to train a large model on a cluster of unlike GPUs.\n\n'
	grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

serve: install ## install what is needed, prepare the database, and serve on 127.0.0.1:8000
	@exec $(BIN)/shardwright serve

install: $(VENV)/.run-installed ## create .venv and install the pinned requirements

test: test-install ## everything that a change must pass: ruff, mypy, import contracts, then pytest
	@$(MAKE) lint
	printf '== pytest, %s processes\n' '$(JOBS)'
	$(BIN)/python -m pytest -m 'not long' -n $(JOBS) --dist loadfile

lint: $(VENV)/.test-installed ## ruff, mypy and the import contracts alone
	@printf '== ruff\n'
	$(BIN)/ruff check .
	printf '== mypy\n'
	$(BIN)/mypy
	printf '== import contracts\n'
	$(BIN)/lint-imports

verify: test-install ## the checks that take minutes: many random problems, long browser and service runs
	@printf '== pytest, long checks\n'
	$(BIN)/python -m pytest -m long || { code=$$?; if [ $$code -eq 5 ]; then printf 'no long checks are there yet\n'; else exit $$code; fi; }

bench: install ## time pricing and search; RECORD=1 writes docs/performance.md
	@$(BIN)/python -m benchmarks $(if $(RECORD),--record docs/performance.md)

accuracy: install ## compare predictions with measured runs: [DATA=runs.csv], RECORD=1 writes docs/accuracy.md
	@$(BIN)/python -m tests.accuracy $(if $(DATA),'$(DATA)') $(if $(RECORD),--record)

lock: $(VENV)/.uv-installed ## resolve the requirements anew and pin them with hashes
	@$(COMPILE) --upgrade --quiet requirements-install.in -o requirements-install.lock
	$(COMPILE) --upgrade --quiet pyproject.toml -o requirements.lock
	$(COMPILE) --upgrade --quiet pyproject.toml --extra test -c requirements.lock -o requirements-test.lock
	printf 'Pinned: requirements-install.lock, requirements.lock, requirements-test.lock\n'

clean: ## remove .venv and caches (not the data of the service)
	@rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

test-install: $(VENV)/.test-installed
	@.ci/prepare

$(VENV)/.uv-installed: requirements-install.lock
	@.ci/create-venv '$(PYTHON)' '$(VENV)'
	printf '== installing uv into %s\n' '$(VENV)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-install.lock
	touch $@

$(VENV)/.run-installed: requirements.lock pyproject.toml $(VENV)/.uv-installed
	@printf '== installing requirements.lock into %s\n' '$(VENV)'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test-installed: requirements-test.lock $(VENV)/.run-installed
	@printf '== installing requirements-test.lock into %s\n' '$(VENV)'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-test.lock
	touch $@
