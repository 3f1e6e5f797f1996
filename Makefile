# The one front door: every command of the project is a target with a `##` comment, which `make help` prints.
# ARGS goes to the program behind a target:  make test ARGS="-k skip"   make demo ARGS="--help"
# PYTHON is the Python to set up with, SIZE how much data `make bench` uses, JOBS how many processes `make test` uses.

PYTHON ?=
SIZE   ?= S
JOBS   ?= 2
ARGS   ?=

BIN       := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types unit conformance fuzz bench nemesis soak docs format clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## make .venv with everything needed; Java 17 too where that is possible

# Made again when the dependencies change; otherwise there is nothing to do.
$(INSTALLED): pyproject.toml
	@sh scripts/ensure_java.sh
	@python=$$(sh scripts/find_python.sh $(PYTHON)) && "$$python" -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,demo]'
	@touch $@

demo: setup ## find the attacks in a real SSH log
	$(BIN)/python examples/ssh_attacks.py $(ARGS)

test: lint types ## all that CI runs: lint, types, every test
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadscope --no-loadscope-reorder $(ARGS)

lint: setup ## ruff: mistakes and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	$(BIN)/mypy

unit: setup ## the tests that need no Spark
	$(BIN)/pytest -m "not spark" $(ARGS)

conformance: setup ## run the corpus of Flink's answers, and all of it with the default semantics
	$(BIN)/asterism conformance tests/corpus/*.jsonl $(ARGS)
	ASTERISM_PROPERTY=long $(BIN)/pytest --quiet tests/conformance/test_changed_by_default.py

fuzz: setup ## 10,000 random expressions, patterns and rules; ARGS="count seed"
	$(BIN)/python -m tests.fuzz.run $(ARGS)

bench: setup ## measure; SIZE=S by default
	$(BIN)/python -m benchmarks.run --size $(SIZE) $(ARGS)

nemesis: setup ## kill, stop and confuse queries, and compare with a replay; ARGS="--kills 1000 --seed 7"
	$(BIN)/python -m tests.nemesis $(ARGS)

soak: setup ## the events of a day in an hour: nothing may grow; ARGS="--minutes 5"
	$(BIN)/python -m tests.soak $(ARGS)

docs: setup ## run the code of the documentation
	$(BIN)/pytest README.md docs $(ARGS)

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove all that is generated, .venv too
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
