# Every command of the project is a target with a `##` comment, which `make help` prints.
# ARGS is passed to the program of a target:  make test ARGS="-k skip"   make demo ARGS="--help"
# PYTHON selects the Python of .venv, SIZE the amount of data of `make bench` and `bench-check`, JOBS the number of processes of the tests,
# EXAMPLES the factor for the number of random examples of `make test-all`.

PYTHON ?=
SIZE   ?= S
JOBS   ?= 3
EXAMPLES ?= 5
ARGS   ?=

# The tests start hundreds of processes, each of which would compile Asterism's modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN       := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo example-kafka test test-all fast-tests all-tests lint types conformance fuzz bench bench-check kernels-of-patterns kernels-of-windows versions nemesis cluster hosts soak docs-site notebooks format clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## create .venv with everything needed, and install Java 17 if no password is needed

# Rebuilt only when the dependencies change. Python compiles the modules that it imports, which are few of those installed.
$(INSTALLED): pyproject.toml
	@sh scripts/ensure_java.sh & \
	python=$$(sh scripts/find_python.sh $(PYTHON)) && "$$python" -m venv .venv && sh scripts/install.sh .venv && wait $$!
	@touch $@

demo: setup ## find the attacks in a real SSH log, in this process and over a stream on Spark
	@$(BIN)/asterism compile patterns
	$(BIN)/asterism demo --spark $(ARGS)

example-kafka: setup ## rules from Kafka over events from Kafka, into Delta: a broker, Spark 4.1 and the jars are downloaded
	@sh scripts/kafka_demo.sh $(ARGS)

LANES := --numprocesses $(JOBS) --dist loadscope --no-loadscope-reorder

test: lint ## everything that CI runs: lint, types, the fast tests; some twelve minutes on two cores
	@$(MAKE) --no-print-directory --jobs types fast-tests

test-all: lint ## also the slow tests and all documents, with more random examples; a few hours
	@$(MAKE) --no-print-directory --jobs types all-tests

fast-tests: kernels-of-windows kernels-of-patterns
	$(BIN)/pytest $(LANES) $(ARGS)

all-tests: kernels-of-windows kernels-of-patterns
	ASTERISM_EXAMPLES=$(EXAMPLES) $(BIN)/pytest --all --timeout 3600 $(LANES) $(ARGS)

lint: setup ## ruff: lint and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	nice $(BIN)/mypy

# Before the tests, in two processes that have no function in common, so nothing is compiled twice. `types` runs beside both.
kernels-of-windows: setup
	$(BIN)/asterism compile windows row_patterns

kernels-of-patterns: setup
	$(BIN)/asterism compile patterns rules

conformance: setup ## run the corpus of Flink's results in Flink's semantics; ARGS="--engine reference"
	$(BIN)/python -m tests.reference conformance tests/corpus/*.jsonl $(ARGS)

fuzz: setup ## 10,000 random expressions, patterns and rules; ARGS="count seed"
	$(BIN)/python -m tests.fuzz.run $(ARGS)

bench: setup ## run the benchmarks; SIZE=S by default; ARGS="--items rules"
	$(BIN)/python -m benchmarks.run --size $(SIZE) $(ARGS)

bench-check: setup ## compare the ratios of the benchmarks with those stored in benchmarks/results.json
	$(BIN)/python -m benchmarks.run --check --size $(SIZE) $(ARGS)

versions: setup ## the supported versions of Spark, Python and dependencies, in environments of their own; ARGS="--only spark4.1"
	$(BIN)/python scripts/versions.py $(ARGS)

nemesis: setup ## kill, stop and disturb queries, and compare with a replay; ARGS="--kills 1000 --seed 7"
	$(BIN)/python -m tests.nemesis $(ARGS)

cluster: setup ## all workloads on a standalone cluster whose workers are killed; ARGS="--size S"
	$(BIN)/python -m tests.cluster $(ARGS)

hosts: setup ## queries on hosts in network namespaces, whose links are cut and slow; needs root; ARGS="--kinds rules"
	$(BIN)/python -m tests.hosts $(ARGS)

soak: setup ## a day's events in an hour; memory and state must not grow; ARGS="--minutes 5"
	$(BIN)/python -m tests.soak $(ARGS)

docs-site: setup ## build the documentation as a site in build/site; a broken link or reference is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --conf-dir scripts/site $(ARGS) docs build/site
	@echo "build/site/index.html"

notebooks: setup ## write the tutorial as Jupyter notebooks, with their data, to build/notebooks
	$(BIN)/python -m scripts.site.notebooks build/notebooks

format: setup ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove all generated files, including .venv
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
