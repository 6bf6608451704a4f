# Needs python3 (3.11 or newer) with pip, git and make. `make` alone lists the commands.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help setup run test suite system lint check quick bench demo mutants torture simulate-long nightly lock fresh-check clean

BIN := .venv/bin
# What .venv is made with, e.g. make test PYTHON=python3.13
PYTHON ?= python3
# Compiled once, not by each of the hundreds of processes that the tests start: some machines switch it off.
unexport PYTHONDONTWRITEBYTECODE
# For make run: what is started, where it listens, where everything it keeps goes; and sqlite or postgres (not for grading).
# DATABASE_URL, GATEWAY_URL (converter) and MODEL_URL (reports) in the environment win over what it would start itself.
SYSTEM ?= converter
PORT ?= 8000
DATA ?= ./data
STORE ?= sqlite
# More for pytest, e.g. make test ARGS="-k lease -x"
ARGS ?=
# Test processes: one more than there are cores, because most tests wait for other processes
PROCESSES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PYTEST := $(BIN)/pytest -q -n $(PROCESSES) --dist loadgroup
# For make simulate-long: how many seeds in memory; a fifth of them on SQLite
SEEDS ?= 5000
# For make torture: how long on each store
MINUTES ?= 1

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The dashboard is built while packages are installed; the last line waits for it, and says what is missing.
setup: ## Make .venv ready with the project and all tools, and build the dashboard
	@$(PYTHON) tools/dashboard background
	@$(PYTHON) tools/bootstrap
	@$(PYTHON) tools/dashboard

run: ## Set up and start a system (SYSTEM=converter|grading|reports|screenshots PORT=8000 DATA=./data STORE=sqlite|postgres)
	@test -d systems/$(SYSTEM)/run || { echo "run: no system $(SYSTEM); there are converter, grading, reports and screenshots" >&2; exit 2; }
	@$(PYTHON) tools/dashboard background
	@$(PYTHON) tools/bootstrap $(if $(filter converter-sqlite,$(SYSTEM)-$(if $(filter postgres%,$(DATABASE_URL)),postgres,$(STORE))),run,dev)
	@exec $(BIN)/python -m systems.$(SYSTEM).run --port $(PORT) --data $(DATA) $(if $(filter grading,$(SYSTEM)),,--store $(STORE))

test: ## Set up and run the whole suite, with private servers
	@$(MAKE) -j3 lint suite

# Beside the type checker, which is alone on its core while the tests are collected on the other
suite: setup system
	@$(PYTEST) $(ARGS)

# Beside the set-up: it waits for the network just as often
system:
	@$(PYTHON) tools/system

lint: setup
	@$(BIN)/ruff format --check --quiet . || { echo "format: run .venv/bin/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(PYTHON) tools/dashboard check
	@$(BIN)/lint-imports --no-logo >.boot/imports.log 2>&1 || { cat .boot/imports.log >&2; exit 1; }

check: lint ## Format, lint, types, import arrows, fast tests
	@$(PYTEST) -m "not slow and not service and not nightly" $(ARGS)

# One process: on two cores a second one spends as long on imports as it saves (ARGS="-n 4" where there are more). The files left out
# play through years of time or fill stores with thousands of rows.
PURE := $(addprefix tests/,values jobs resilience diagnosis health outbox/test_outbox.py)
SLOWER := resilience/test_limiter jobs/test_schedule resilience/test_windows contract/test_many_lanes contract/test_retry_priority
quick: setup ## The loop while you write: pure parts, and the contract on memory and SQLite, in seconds
	@$(BIN)/pytest -q -n 0 --hypothesis-profile=quick -m "not slow and not service and not nightly and not postgres" \
		$(SLOWER:%=--ignore=tests/%.py) $(PURE) tests/contract $(ARGS)

bench: setup ## Measure speed; figures go to the terminal
	@test -e benchmarks/__main__.py || { echo "bench: benchmarks/__main__.py is not there yet" >&2; exit 1; }
	@$(BIN)/python -m benchmarks $(ARGS)

demo: ## A one-minute tour in the terminal: a killed worker, an outage, the breaker, a dead letter
	@$(PYTHON) tools/bootstrap run
	@exec $(BIN)/python -m systems.converter.tour

mutants: setup ## Plant bugs in a copy of the source and show which test catches each
	@$(BIN)/python tools/mutants.py $(ARGS)

torture: setup system ## Real workers and stores under blows, then an audit (MINUTES=1 on each; ARGS="--store postgres+brokers")
	@$(BIN)/python -m tests.torture --minutes $(MINUTES) $(ARGS)

simulate-long: setup ## Play many seeds on both stores (SEEDS=5000), and walk the largest exhaustive scenario
	@$(BIN)/python -m tests.simulation 0 $(SEEDS)
	@$(BIN)/python -m tests.simulation --store sqlite 0 $$(($(SEEDS) / 5))
	@$(BIN)/python -m tests.exhaustive

nightly: setup system ## What takes about an hour: nightly tests, seeds, mutants, torture; then docs/explanation/nightly.md
	@$(BIN)/python tools/nightly.py $(if $(filter command line,$(origin SEEDS)),--seeds $(SEEDS)) \
		$(if $(filter command line,$(origin MINUTES)),--minutes $(MINUTES)) $(ARGS)

lock: ## Write the lock files again (LOCK_ARGS=--upgrade for newer versions)
	@$(PYTHON) tools/bootstrap lock

fresh-check: ## Clone what is committed into an empty place and run `make test` there
	@tools/fresh-check

clean: ## Remove what the commands above have made
	@rm -rf src/holdfast/server/dashboard_files web/node_modules
	@rm -rf .venv .boot .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
