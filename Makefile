# Every target makes the environment first, or refreshes it when what it is made from has changed.
# `make` alone lists them. Works with GNU make 3.81 and later.

# The interpreter that makes the environment: the first of these that runs and is 3.11 or later.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
            $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
# Where the environment lives, and options for pip (say, an index of CPU-only wheels).
VENV ?= .venv
PIP_ARGS ?=
# Passed on: a hub id or a folder (empty: the embedded model), a port, further arguments.
MODEL ?=
PORT ?=
BENCH ?= throughput
ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.yaie-ready

.DEFAULT_GOAL := help
.PHONY: help setup serve chat bench stubs docs docs-serve test check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: MODEL=hub-id-or-folder  PORT=number  ARGS='more arguments'"
	@echo "           PYTHON=interpreter  VENV=folder  PIP_ARGS='options for pip'"

setup: $(READY) ## Make the environment in .venv
	@echo "Ready: $(BIN)/yaie"

serve: $(READY) ## Serve a model over HTTP [MODEL, PORT, ARGS]
	$(BIN)/yaie serve $(MODEL) $(if $(PORT),--port $(PORT)) $(ARGS)

chat: $(READY) ## Talk to a model in the terminal [MODEL, ARGS]
	$(BIN)/yaie chat $(MODEL) $(ARGS)

bench: $(READY) ## Measure [BENCH=throughput|latency|memory|prefix|bookkeeping, MODEL, ARGS]
	$(BIN)/yaie bench $(BENCH) $(MODEL) $(ARGS)

stubs: $(READY) ## Generate labs/ from solutions/ [ARGS=--force overwrites your own work]
	$(BIN)/python -m grader.stubs $(ARGS)

docs: $(READY) ## Build the book into book/out and check it
	$(BIN)/python -m book.tools.build

docs-serve: $(READY) ## Serve the book, rebuilt as you write [PORT]
	$(BIN)/python -m book.tools.serve $(if $(PORT),--port $(PORT))

test: $(READY) ## Run the tests [ARGS, for example ARGS='-m "not slow"']
	$(BIN)/python -m pytest $(ARGS)

check: $(READY) ## Lint, format, types, stubs in step, book without a fault
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m grader.stubs --check
	$(BIN)/python -m book.tools.build

clean: ## Remove the environment, the built book and the caches
	rm -rf "$(VENV)" book/out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find yaie solutions labs grader book tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "YAIE needs Python 3.11 or later$(if $(PYTHON),; $(PYTHON) is not that,, and none was found)."; \
	  echo "Install one (on Debian or Ubuntu: apt install python3 python3-venv),"; \
	  echo "or name it: make PYTHON=/path/to/python3.11"; exit 2; } >&2
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make a virtual environment: its venv module is not installed."; \
	  echo "On Debian or Ubuntu: apt install python3-venv"; exit 2; } >&2
	@echo "Setting up $(VENV): a few minutes the first time, most of them for PyTorch."
	"$(PYTHON)" -m venv "$(VENV)"
	$(BIN)/python -m pip install $(PIP_ARGS) --constraint constraints.txt --editable '.[dev]'
	@touch $@
