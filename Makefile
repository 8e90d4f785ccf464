# Every target prepares .venv by itself, and again whenever the dependencies change.
#
#   make PYTHON=python3.12 test         another interpreter
#   make test ARGS="-k gaussian -x"     arguments for pytest, the demo or the benchmark

PYTHON ?= python3
ARGS ?=
WORKERS ?= 2
SECONDS ?= 60

BIN := .venv/bin
READY := .venv/.installed

# Without this pyright would look for a newer release of itself on every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz lint format bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Train a small model and ask it questions
	@$(BIN)/einet demo $(ARGS)

test: $(READY) ## Run the tests and the examples in the docstrings
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

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

bench: $(READY) ## Measure speed and memory on this machine's CPU
	@$(BIN)/python benchmarks/cpu.py $(ARGS)

clean: ## Remove .venv, caches and build outputs
	@rm -rf .venv .hypothesis .pytest_cache .ruff_cache build dist
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
