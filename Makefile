# Every target sets up what it needs (virtual environment, locked dependencies, Java) on first use.
.DEFAULT_GOAL := help
.PHONY: help demo test check bench compare compile scale swarm chaos fuzz soak engines cluster-test stream-test page-test pythons papers docs format lock setup clean
BIN := .venv/bin
READY := .venv/.ready
SEEDS ?= 1000
BASE ?= main
CHAOS ?= 20
FUZZ_SECONDS ?= 3600
SOAK_MINUTES ?= 30
PAPERS ?= vector-overhead atomic-clocks atomic-groups atomic-random atomic-tpcc atomic-tcp ginger-keys ginger-faults ginger-repair ginger-scenarios cluster-tickets cluster-robustness cluster-scale cluster-load preventive-churn preventive-latency cluster-datagrams locamu-5.4 locamu-faults locamu-scale preventive-scale cluster-recovery-odds locamu-5.1 locamu-5.3 locamu-5.2
export NO_MKDOCS_2_WARNING := 1

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock requirements-java.lock pyproject.toml scripts/setup scripts/compile src/ordercast/core/compiled.c
	@scripts/setup

setup: $(READY) ## set up this clone; every other target does it too

compile: $(READY) ## build again what is there in C, too, after a change of it; set-up does it once
	@$(BIN)/python scripts/compile

demo: $(READY) ## the main job, end to end: kill brokers under a replicated bank, verify on Spark, report
	@$(BIN)/ordercast demo --out runs/demo

test: $(READY) ## the whole suite
	@$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

check: $(READY) ## lint, format, types, import rules, docs
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	@$(BIN)/mkdocs build --strict --quiet
	@echo "check: all fine"

bench: $(READY) ## benchmarks, each beside a peer or a limit
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-bench.lock
	@for b in effect_styles simulator overlay_scale judge explorer tcp datagrams kept_state atomic_tcp replication pubsub pubsub_awaited pubsub_repair nats_door live_page pubsub_memory pubsub_sessions pubsub_topics pubsub_absent kept_topics spark_source shared_work position_across services; do echo "== $$b"; $(BIN)/python benchmarks/$$b.py; done

compare: $(READY) ## benchmarks of this tree and of the commit BASE in turn: is anything slower?
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-bench.lock
	@$(BIN)/python benchmarks/before_after.py $(BASE)

scale: $(READY) ## verdicts from 1 to 200 million deliveries on one core, two, and a cluster: docs/scale.csv, goes on where it was stopped
	@nice -n 10 $(BIN)/python benchmarks/scale.py

swarm: $(READY) ## SEEDS random runs per protocol (default 1000), judged by the kernels
	@$(BIN)/python -m tests.properties.swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.pubsub_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.kept_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.durable_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.baseline_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.replicated_swarm --seeds $(SEEDS)
	@for f in 1 2; do $(BIN)/python -m tests.properties.locamu_swarm --seeds $(SEEDS) --f $$f || exit 1; done
	@for f in 1 2; do $(BIN)/python -m tests.properties.locamu_dynamic_swarm --seeds $(SEEDS) --f $$f || exit 1; done
	@$(BIN)/python -m tests.properties.cluster_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.preventive_swarm --seeds $(SEEDS)
	@$(BIN)/python -m tests.properties.preventive_memory_swarm --seeds $(SEEDS)

chaos: $(READY) ## CHAOS random runs of real broker and client processes (default 20), killed, stopped and cut off; of shared work, too
	@$(BIN)/python -m tests.chaos.swarm --seeds $(CHAOS)
	@$(BIN)/python -m tests.chaos.work --seeds $(CHAOS) --spare
	@$(BIN)/python -m tests.chaos.work --seeds $(CHAOS)

fuzz: $(READY) ## FUZZ_SECONDS of wounded input for every decoder (default 3600); what comes through goes to tests/fuzz/corpus
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

soak: $(READY) ## SOAK_MINUTES of sessions, topics and brokers that come and go (default 30): memory and descriptors stay flat
	@$(BIN)/python -m tests.chaos.soak --minutes $(SOAK_MINUTES)

engines: $(READY) ## SEEDS random traces (default 1000): the local and the distributed engine say the same
	@$(BIN)/python -m tests.support.engines --seeds $(SEEDS)

cluster-test: $(READY) ## the judge on a standalone Spark cluster, its trace out of reach of the driver, a worker killed
	@$(BIN)/python -m tests.chaos.spark_cluster

stream-test: $(READY) ## Spark queries on kept topics, killed with the brokers under them; a batch published twice; the monitor; a cluster
	@$(BIN)/python -m tests.chaos.spark_stream
	@$(BIN)/python -m tests.chaos.spark_stream_cluster

page-test: $(READY) ## the live page in a real Chromium (Debian's is installed if there is none and you are root)
	@command -v chromium chromium-browser google-chrome chrome >/dev/null || [ -n "$$ORDERCAST_CHROMIUM" ] || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } || { \
	  echo "page-test: install Chromium (apt install chromium), or name one in ORDERCAST_CHROMIUM" >&2; exit 3; }
	@$(BIN)/pytest -s tests/pages/check_live_page.py

pythons: $(READY) ## the base wheel on every Python from 3.11 on that this machine has: a broker, a message, unit tests
	@scripts/pythons

papers: $(READY) ## PAPERS at the scale of their sources (default: all studies, the longest last), at low priority; goes on where it was stopped
	@failed=; for study in $(PAPERS); do echo "== $$study"; \
	  nice -n 19 $(BIN)/ordercast experiment run $$study --scale paper --out runs/papers/$$study || { \
	    code=$$?; [ $$code -lt 128 ] || exit $$code; failed="$$failed $$study"; }; \
	done; [ -z "$$failed" ] || { echo "papers: look at$$failed"; exit 1; }

docs: $(READY) ## build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet && echo "site/index.html"

format: $(READY) ## format the code
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format --quiet

lock: $(READY) ## resolve the dependencies anew into the lock files
	@scripts/lock

clean: ## remove what the targets made, the virtual environment included
	@rm -rf .venv site runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
