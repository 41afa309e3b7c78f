# Every target sets up what it needs (virtual environment, locked dependencies, Java) on first use.
.DEFAULT_GOAL := help
.PHONY: help demo test check bench swarm chaos fuzz soak docs format lock setup clean
BIN := .venv/bin
READY := .venv/.ready
SEEDS ?= 1000
CHAOS ?= 20
FUZZ_SECONDS ?= 3600
SOAK_MINUTES ?= 30
export NO_MKDOCS_2_WARNING := 1

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock requirements-java.lock pyproject.toml scripts/setup
	@scripts/setup

setup: $(READY) ## set up this clone; every other target does it too

demo: $(READY) ## the main job, end to end: kill brokers under a replicated bank, verify on Spark, report
	@$(BIN)/ordercast demo --out runs/demo

test: $(READY) ## the whole suite
	@$(BIN)/pytest -n 2 --dist loadfile

check: $(READY) ## lint, format, types, import rules, docs
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	@$(BIN)/mkdocs build --strict --quiet
	@echo "check: all fine"

bench: $(READY) ## benchmarks, each beside a peer or a limit
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-bench.lock
	@for b in effect_styles simulator judge explorer tcp kept_state atomic_tcp replication pubsub pubsub_repair pubsub_memory pubsub_sessions pubsub_topics services; do echo "== $$b"; $(BIN)/python benchmarks/$$b.py; done

swarm: $(READY) ## SEEDS random runs per protocol (default 1000), judged by the kernels
	@$(BIN)/python -m tests.properties.swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.pubsub_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.baseline_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.replicated_swarm --seeds $(SEEDS)
	@for f in 1 2; do $(BIN)/python -m tests.properties.locamu_swarm --seeds $(SEEDS) --f $$f || exit 1; done
	@$(BIN)/python -m tests.properties.locamu_dynamic_swarm --seeds $(SEEDS)

chaos: $(READY) ## CHAOS random runs of real broker and client processes (default 20), killed, stopped and cut off
	@$(BIN)/python -m tests.chaos.swarm --seeds $(CHAOS)

fuzz: $(READY) ## FUZZ_SECONDS of wounded input for every decoder (default 3600); what comes through goes to tests/fuzz/corpus
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

soak: $(READY) ## SOAK_MINUTES of sessions, topics and brokers that come and go (default 30): memory and descriptors stay flat
	@$(BIN)/python -m tests.chaos.soak --minutes $(SOAK_MINUTES)

docs: $(READY) ## build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet && echo "site/index.html"

format: $(READY) ## format the code
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format --quiet

lock: $(READY) ## resolve the dependencies anew into the lock files
	@scripts/lock

clean: ## remove what the targets made, the virtual environment included
	@rm -rf .venv site runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
