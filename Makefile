# Every target prepares .venv by itself, and again whenever the dependencies change.
#
#   make PYTHON=python3.12 test         another interpreter
#   make test ARGS="-k gaussian -x"     arguments for pytest, the demo or the benchmark

PYTHON ?= python3
ARGS ?=
WORKERS ?= 2
SECONDS ?= 60
# The torch of `make test-newest`. Without a version pip may bring gigabytes of CUDA libraries, so it
# is the pinned one; for the newest say TORCH=torch, for another TORCH=torch==2.6.0.
TORCH ?= $(shell sed -n 's/^\(torch==[^ ;]*\).*/\1/p' constraints.txt)

BIN := .venv/bin
READY := .venv/.installed
BROWSER_READY := .venv/.installed-browser
DOCS_READY := .venv/.installed-docs
NEWEST := .venv-newest/bin/python

# Without this pyright would look for a newer release of itself on every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-newest test-long test-browser fuzz lint format docs bench dist clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Train a small model and ask it questions
	@$(BIN)/einet demo $(ARGS)

test: $(READY) ## Run the tests and the examples in the docstrings
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-newest: ## Run the tests with the newest releases that pyproject.toml allows
	@echo "Preparing .venv-newest (a few minutes) ..."
	@test -x $(NEWEST) || $(PYTHON) -m venv .venv-newest
	@$(NEWEST) -m pip install -q --upgrade pip
	@$(NEWEST) -m pip install -q --upgrade --upgrade-strategy eager -e '.[dev]' '$(TORCH)'
	@$(NEWEST) -m pip list
	@$(NEWEST) -m pytest -n $(WORKERS) $(ARGS)

test-long: $(READY) ## Run the tests of random examples with 500 of them each
	@$(BIN)/python -m pytest -n $(WORKERS) -m 'hypothesis and not gpu' \
		--hypothesis-profile einet-long $(ARGS)

test-browser: $(BROWSER_READY) ## Test the studio's page in a real browser (needs chromium)
	@$(BIN)/python -m pytest tests/studio/browser -m browser $(ARGS)

fuzz: $(READY) ## Attack files, checkpoints, data and calls for SECONDS each (default 60)
	@$(BIN)/python -m pytest tests/fuzz -s --fuzz-seconds $(SECONDS) \
		--fuzz-failures fuzz-failures --fuzz-results tests/fuzz/results $(ARGS)

lint: $(READY) ## Check formatting, style, types and who imports whom
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pyright

format: $(READY) ## Format the code and apply safe fixes
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

docs: $(DOCS_READY) ## Build the site in build/docs: every code cell runs, and warnings are errors
	@$(BIN)/python -m sphinx -q -W --keep-going -n -j $(WORKERS) -b html docs build/docs $(ARGS)
	@echo "The site is build/docs/index.html"

bench: $(READY) ## Measure speed and memory on this machine's CPU
	@$(BIN)/python benchmarks/cpu.py $(ARGS)

dist: $(READY) ## Build the wheel and the source distribution, install each, and try it
	@$(BIN)/python tools/dist.py

clean: ## Remove environments, caches and build outputs
	@rm -rf .venv .venv-newest .venv-dist .hypothesis .pytest_cache .ruff_cache build dist
	@find src tests benchmarks -name .envs -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf __pycache__

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "einet needs Python 3.11 or newer, but '$(PYTHON)' says: $$($(PYTHON) --version 2>&1)" >&2; \
		echo "Name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@echo "Preparing .venv (a few minutes the first time) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q -c constraints.txt pip
	@$(BIN)/python -m pip install -q -e '.[dev]' -c constraints.txt --build-constraint constraints.txt
	@touch $@

$(DOCS_READY): $(READY)
	@$(BIN)/python -m pip install -q -e '.[dev,docs]' -c constraints.txt --build-constraint constraints.txt
	@touch $@

$(BROWSER_READY): $(READY)
	@$(BIN)/python -m pip install -q -e '.[dev,browser]' -c constraints.txt --build-constraint constraints.txt
	@touch $@
