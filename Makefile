# Needs Python 3.9 or newer with venv, Java 17 or newer and make; `make test-interop` needs a JDK and Maven.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Each worker starts a Spark of its own.
WORKERS ?= auto --maxprocesses 4
# These wait for JVMs most of the time.
JVM_WORKERS ?= 3
MINUTES ?= 10
SEED ?= 1
STORES ?= 10000

# Spark 4.0 runs on Python 3.9 to 3.13. A name may be on PATH and still not run (pyenv), so each is tried.
PYTHON40 ?= $(shell for p in python3.12 python3.11 python3.10 python3.9 python3.13; do \
	$$p -c 'import venv' 2>/dev/null && { echo $$p; break; }; done)
VENV40 := .venv-spark40

# The environments are rebuilt when the requirements, the version, the Python or the folder change.
KEY := $(shell { pwd; $(PYTHON) -V 2>&1; cat setup.cfg pyproject.toml; grep '^__version__' store_core/__init__.py; } \
	| cksum | cut -d ' ' -f 1)
READY := $(VENV)/ready-$(KEY)
# The kernel is built again when it changes.
READY_KERNEL := $(VENV)/kernel-$(KEY)-$(shell cat setup.py store_core/native/*.[ch] | cksum | cut -d ' ' -f 1)
KERNEL := $(filter-out %/layout.h,$(wildcard store_core/native/*.[ch]))
READY_LINT := $(VENV)/lint-$(KEY)
READY40 := $(VENV40)/ready-$(KEY)
READY_SPARK := $(VENV)/spark-home-$(KEY)

PIP := -m pip --disable-pip-version-check --no-input install --quiet

# Spark looks for the source in the Python that it starts, which must be the environment's.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

.PHONY: help demo test test-full test-interop bench house soak lint clean environment java
.DEFAULT_GOAL := help

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' Makefile | awk -F '|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: $(READY) java ## read a bundled real store: topics, a time window, one key
	$(BIN)/python -m rmqsource.demo $(ARGS)

test: $(READY_SPARK) $(READY_KERNEL) java ## run the fast tests, some minutes in all (ARGS="-k name": some; WORKERS=0: in one process)
	$(BIN)/python -m pytest -m "not full and not interop and not soak" --hypothesis-profile=quick \
		-n $(WORKERS) --dist worksteal $(ARGS)

test-full: $(READY_SPARK) $(READY_KERNEL) java ## run all tests but those of interop and soak (ARGS, WORKERS as above)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-interop: $(READY_SPARK) $(READY_KERNEL) java ## run the tests that need a JDK and Maven
	$(BIN)/python -m pytest -m interop -n $(JVM_WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

bench: $(READY_KERNEL) java ## measure; ratios as a table and as JSON
	$(BIN)/python -m bench $(ARGS)

house: $(READY_KERNEL) ## count modules, rooms, circles and ways
	$(BIN)/python -m tests.house $(ARGS)

soak: $(READY_KERNEL) $(READY40) java ## long tests (MINUTES=10 SEED=1 STORES=10000), then Spark 4.0
	SOAK_MINUTES=$(MINUTES) SOAK_SEED=$(SEED) SOAK_STORES=$(STORES) $(BIN)/python -m pytest -m soak $(ARGS)
	PYSPARK_PYTHON=$(CURDIR)/$(VENV40)/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/$(VENV40)/bin/python \
		$(VENV40)/bin/python -m pytest

lint: $(READY_LINT) ## style, types, import layers
	$(BIN)/ruff check --config conf/ruff.toml .
	$(BIN)/ruff format --config conf/ruff.toml --check .
	$(BIN)/clang-format --style=file:conf/clang-format --dry-run --Werror $(KERNEL)
	$(BIN)/codespell
	$(BIN)/mypy --strict store_core rmqnet rmqsource bench pyspark_rocketmq.py pyspark_rocketmq_store.py
	$(BIN)/lint-imports --config setup.cfg

clean: ## remove what these commands made
	rm -rf $(VENV) $(VENV40) build dist *.egg-info .coverage .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log
	rm -rf tests/interop/oracle/target tests/interop/oracle/cluster/target
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

environment: $(READY_KERNEL) ## install everything that the tests need

java:
	@command -v java >/dev/null || [ -x "$$JAVA_HOME/bin/java" ] \
		|| { echo "Spark needs Java 17 or newer: none on PATH, and JAVA_HOME has none" >&2; exit 1; }

$(READY): setup.cfg pyproject.toml
	@echo "making $(VENV), once: takes a minute or two"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(PIP) -e '.[cli,test]'
	touch $@

$(READY_KERNEL): $(READY)
	$(BIN)/python $(PIP) --no-deps -e .
	touch $@

$(READY_SPARK): $(READY) | java
	@echo "archiving Spark's classes for the tests, once: takes a minute or two"
	$(BIN)/python -m tests.spark_home
	touch $@

$(READY_LINT): $(READY)
	$(BIN)/python $(PIP) -e '.[cli,lint,test]'
	touch $@

$(READY40): setup.cfg pyproject.toml
	@[ -n "$(PYTHON40)" ] || { echo "Spark 4.0 needs Python 3.9 to 3.13: give one as PYTHON40=…" >&2; exit 1; }
	$(PYTHON40) -m venv --clear $(VENV40)
	$(VENV40)/bin/python $(PIP) -e '.[cli,test]' 'pyspark[connect]==4.0.*'
	touch $@
