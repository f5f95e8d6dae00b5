# Every target makes the environment first, or refreshes it when what it is made from has changed.
# `make` alone lists them. Works with GNU make 3.81 and later.

# The interpreter that makes the environment: the first of these that runs and is 3.10 or later.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python3.10 python; do \
            $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && echo $$p && break; done)
# Where the environment lives, and options for pip (say, an index of CPU-only wheels).
VENV ?= .venv
PIP_ARGS ?=
# Passed on: a hub id or a folder (empty: the embedded model), a port, further arguments.
MODEL ?=
PORT ?=
BENCH ?= throughput
ARGS ?=
# Of the graders: a lab and a task, a seed, and what is graded: labs, solutions, or a folder.
LAB ?=
TASK ?=
SEED ?=
IMPL ?=
# Of nightly: a part of its tests (empty: all): book, judges, cluster, engine, programs, rest.
PART ?=
# Of mutants: a module or folder of yaie (empty: all of it), and how many of the mutants to try (empty: all).
MODULE ?=
SAMPLE ?=
# Of chat and serve: cpu, torch, triton or cuda (empty: triton on a GPU, cpu without one).
BACKEND ?=
# Of build-kernels: GPU architectures, such as "80;90" (empty: this machine's).
ARCH ?=

# A folder is meant as seen from where make was called, even with `make -C`.
IMPL_PATH = $(if $(filter labs solutions /% ~%,$(IMPL)),$(IMPL),$(or $(PWD),$(CURDIR))/$(IMPL))

# Without a GPU Triton runs in its interpreter. A device of NVIDIA's, WSL's or AMD's driver is one.
INTERPRETED = $(if $(filter triton,$(BACKEND)),$(if $(wildcard /dev/nvidiactl /dev/dxg /dev/kfd),,TRITON_INTERPRET=1 ))

BIN := $(VENV)/bin
READY := $(VENV)/.yaie-ready

# A recipe's first line where a lab must be named.
NAMED = @test -n "$(LAB)" || { echo "Name a lab: make $@ LAB=radix_tree" >&2; exit 2; }

.DEFAULT_GOAL := help
.PHONY: help setup grade watch hint reset upgrade demo break notebook show serve chat \
        bench build-kernels stubs selfcheck mutants docs docs-serve pdf given traces notebooks evidence \
        test nightly real check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: LAB=radix_tree  TASK=4.2  SEED=number  IMPL=labs|solutions|folder"
	@echo "           MODEL=hub-id-or-folder  PORT=number  ARGS='more arguments'"
	@echo "           BACKEND=cpu|torch|triton|cuda"
	@echo "           PYTHON=interpreter  VENV=folder  PIP_ARGS='options for pip'"

setup: $(READY) ## Make the environment in .venv
	@echo "Ready: $(BIN)/yaie"

grade: $(READY) ## Grade a lab, or all of them [LAB, TASK, SEED, IMPL, ARGS]
	@$(BIN)/python -m grader grade $(LAB) $(if $(TASK),--task $(TASK)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(IMPL),--impl "$(IMPL_PATH)") $(ARGS)

watch: $(READY) ## Grade a lab again whenever you save [LAB, SEED]
	$(NAMED)
	@$(BIN)/python -m grader watch $(LAB) $(if $(SEED),--seed $(SEED)) $(ARGS)

hint: $(READY) ## One more hint, of four, for a task [LAB, TASK, ARGS=--again]
	$(NAMED)
	@$(BIN)/python -m grader hint $(LAB) $(if $(TASK),--task $(TASK)) $(ARGS)

reset: $(READY) ## Restore a lab's stubs; your files are kept [LAB, ARGS=--yes]
	$(NAMED)
	@$(BIN)/python -m grader reset $(LAB) $(ARGS)

upgrade: $(READY) ## After a new version: your work on today's stubs; your files are kept [LAB]
	@$(BIN)/python -m grader upgrade $(LAB)

demo: $(READY) ## A lab's part at work, beside the engine without it [LAB, ARGS]
	$(NAMED)
	@$(BIN)/yaie lab demo $(LAB) $(ARGS)

break: $(READY) ## After a finished lab: catch ten wrong versions of it [LAB, ARGS='--round 2']
	$(NAMED)
	@$(BIN)/python -m grader break $(LAB) $(ARGS)

notebook: $(READY) ## Open a lab's notebook in the browser [LAB, ARGS=--no-browser]
	@test -f "labs/$(LAB)/explore.ipynb" || { echo "Name a lab: make $@ LAB=radix_tree" >&2; exit 2; }
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)/labs/$(LAB)" \
	  --FileCheckpoints.checkpoint_dir="$(CURDIR)/.yaie/checkpoints/$(LAB)" \
	  --LabApp.default_url=/lab/tree/explore.ipynb $(ARGS)

show: $(READY) ## The chapter's figures, recorded from your part of a lab [LAB, ARGS=--no-browser]
	$(NAMED)
	@$(BIN)/python -m book.tools.traces.show $(LAB) $(ARGS)

serve: $(READY) ## Serve a model over HTTP [MODEL, PORT, BACKEND, ARGS]
	$(INTERPRETED)$(BIN)/yaie serve $(MODEL) $(if $(PORT),--port $(PORT)) $(if $(BACKEND),--backend $(BACKEND)) $(ARGS)

chat: $(READY) ## Talk to a model in the terminal [MODEL, BACKEND=triton, ARGS]
	$(INTERPRETED)$(BIN)/yaie chat $(MODEL) $(if $(BACKEND),--backend $(BACKEND)) $(ARGS)

bench: $(READY) ## Measure [BENCH=throughput, or what `yaie bench` lists; MODEL, ARGS]
	$(BIN)/yaie bench $(BENCH) $(MODEL) $(ARGS)

build-kernels: $(READY) ## Compile the CUDA kernels, without a GPU too [ARCH="80;90", IMPL=labs]
	@$(BIN)/yaie build-kernels $(if $(ARCH),--arch "$(ARCH)") $(if $(filter labs,$(IMPL)),--yours) $(ARGS)

stubs: $(READY) ## Generate labs/ from solutions/ [ARGS=--force overwrites your own work]
	$(BIN)/python -m grader.stubs $(ARGS)

selfcheck: $(READY) ## Prove the graders: stubs, known mistakes, mutants [ARGS='radix_tree']
	$(BIN)/python -m grader selfcheck $(ARGS)

mutants: $(READY) ## Change the engine; which tests notice? [MODULE, SAMPLE, SEED, ARGS]
	$(BIN)/python -m tests.mutants $(MODULE) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

docs: $(READY) ## Build the book into book/out and check it
	$(BIN)/python -m book.tools.build

docs-serve: $(READY) ## Serve the book, rebuilt as you write [PORT]
	$(BIN)/python -m book.tools.serve $(if $(PORT),--port $(PORT))

pdf: docs ## Print the whole book into book/out/yaie.pdf, with Chromium
	$(BIN)/python -m book.tools.pdf

given: $(READY) ## Read again which calls the references use, for the chapters' tables [ARGS=lab]
	$(BIN)/python -m book.tools.given_names $(ARGS)

traces: $(READY) ## Record the data of the book's figures from the reference
	$(BIN)/python -m book.tools.traces $(ARGS)

notebooks: $(READY) ## Run the labs' notebooks on the reference, into the book [LAB]
	$(BIN)/python -m book.tools.notebooks $(LAB) $(ARGS)
	$(BIN)/python -m book.tools.hosted

evidence: $(READY) ## Measure again the book's figures, on an idle machine [ARGS=--stale]
	$(BIN)/python -m book.tools.remeasure $(ARGS)

test: $(READY) ## Run the tests, in parallel, without nightly ones [ARGS, for example ARGS=tests/engine]
	$(BIN)/python -m tests.run $(ARGS)

nightly: $(READY) ## Run the tests marked nightly, part after part, write it down [PART, ARGS]
	$(BIN)/python -m tests.nightly $(if $(PART),--part=$(PART)) $(ARGS)

real: $(READY) ## Try the engine on a real model, SmolLM2, from the package index [ARGS]
	$(BIN)/python -m pytest -m nightly -p no:randomly -v tests/real $(ARGS)

check: $(READY) ## Lint, format, types; stubs, figures and book in step and without a fault
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m grader.stubs --check $(if $(CI),--strict)
	$(BIN)/python -m book.tools.traces --check
	$(BIN)/python -m book.tools.notebooks --check
	$(BIN)/python -m book.tools.hosted --check
	$(BIN)/python -m book.tools.given_names --check
	$(BIN)/python -m book.tools.build

clean: ## Remove the environment, the built book and the caches
	rm -rf "$(VENV)" book/out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find yaie solutions labs grader book tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "YAIE needs Python 3.10 or later$(if $(PYTHON),; $(PYTHON) is not that,, and none was found)."; \
	  echo "Install one (on Debian or Ubuntu: apt install python3 python3-venv),"; \
	  echo "or name it: make PYTHON=/path/to/python3.11"; exit 2; } >&2
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make a virtual environment: its venv module is not installed."; \
	  echo "On Debian or Ubuntu: apt install python3-venv"; exit 2; } >&2
	@echo "Setting up $(VENV): a few minutes the first time, most of them for PyTorch."
	@"$(PYTHON)" -I yaie/cli/set_up.py "$(VENV)" $(PIP_ARGS)
	@touch $@
