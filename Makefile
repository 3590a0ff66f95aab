# Every target installs what it needs into .venv; only Python and, for Spark, Java must be
# installed first. `make` lists the targets.

PYTHON ?= python3
VENV := .venv
# Other environments: .venv-spark-X has Spark X, .venv-spark-X-pythonY another Python as well.
OLDEST := .venv-spark-3.5.9
# The newest Spark that each connector exists for.
CONNECTORS := .venv-spark-4.2.0
ICEBERG := .venv-spark-4.1.3
BETWEEN := .venv-spark-4.0.5 $(ICEBERG) $(CONNECTORS)
# Where the interpreter is installed.
runs = $(shell $(1) -c "" 2>/dev/null && echo yes)
OTHER_PYTHONS := $(if $(call runs,python3.10),.venv-spark-4.0.5-python3.10) \
  $(if $(call runs,python3.12),.venv-spark-4.2.0-python3.12) \
  $(if $(call runs,python3.13),.venv-spark-4.2.0-python3.13)
# With the peer that the benchmarks measure.
BENCH := .venv-bench
BIN := $(VENV)/bin
# With the hash of every file. pip builds PySpark and the project with what this installs first, not
# with what it would download for each build.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation
HASHED := $(PIP) --require-hashes --requirement
# Many tests wait for sockets and other processes. Those with Spark share a driver in each of three
# processes: with two, a machine of two cores idles for a sixth of the time. A file stays in one of
# them, because its fixtures are expensive. The files stay in order, so the tests whose own processes
# keep the machine busy are last.
# Those with brokers and tables wait more: two processes keep two cores busy.
SIDE_BY_SIDE := -n 6 --dist worksteal
THREE_DRIVERS := -n 3 --dist loadfile --no-loadscope-reorder
TWO_DRIVERS := -n 2 --dist loadfile --no-loadscope-reorder
# Only the files that name one of these markers: importing all takes each process ten seconds.
# tests/repository/test_stages.py checks that no other file has such tests.
files_with = $(if $(ARGS),,$$(grep -rlE --include='test_*.py' 'mark\.($(1))' tests | sort))
# ARGS may choose tests of one kind only; pytest ends with 5 where there are none.
OR_NONE = $(if $(ARGS),|| test $$? -eq 5)
# On a busy machine, Spark may be slower than a test allows. What fails in a run of all tests (without
# ARGS) runs once more, alone, and the output shows both runs; what fails twice fails.
FAILED := build/failed
define test_on_spark
@rm -rf $(FAILED); $(1) $(2) $(ARGS) -o cache_dir=$(FAILED); ended=$$?; \
  if [ $$ended -eq 1 ]; then \
    $(if $(ARGS),true,echo "make: what failed runs once more and alone"; \
    $(1) -o cache_dir=$(FAILED) --last-failed --last-failed-no-failures none && ended=0); \
  fi; \
  (exit $$ended)
endef
# How long `make simulate` searches for a history that breaks a promise, and `make fuzz` for an input.
MINUTES := 5
FUZZ_TARGETS := events state http settings
# How long `make soak` runs.
SOAK_MINUTES := 30
# Also after a failure: the page says what does not hold. A run of a part (ARGS) leaves it alone.
WRITE_FAULTS = $(if $(ARGS),true,$(MAKE) faults)
# All signals, all outcomes, healthy and failing queries, Spark's internals, Spark Connect, and the
# demo. Before Spark 4.2, the workloads are without the five that need a source in Python with offsets.
MATRIX_TESTS := $(addprefix tests/spark/test_spark_,listening.py long_life.py jvm_gone.py \
  polling.py deaths.py stalls.py commit_log.py execution.py identity.py two_processes.py \
  healthy_workloads.py failing_workloads.py connect.py) tests/commands/test_demo.py \
  $(addprefix tests/listener/test_,decode.py health_listener.py)
# Without those that take longest and depend least on the version of Spark.
OLDEST_TESTS := $(filter-out %_long_life.py %_jvm_gone.py %_two_processes.py %/test_demo.py,$(MATRIX_TESTS)) \
  'tests/commands/test_demo.py::test_each_scenario_is_detected_and_reported[failure]'
# One environment takes a quarter of an hour or more; each keeps its results in build/matrix.
MATRIX := $(OLDEST) $(BETWEEN) $(VENV) $(OTHER_PYTHONS)
NAMES_RUN := import platform, pyspark; print(pyspark.__version__, platform.python_version(), sep='-python')
GENERATORS := rules grafana stack settings
APT_PACKAGES := openjdk-17-jre-headless:java prometheus:promtool \
  prometheus-alertmanager:prometheus-alertmanager \
  prometheus-pushgateway:prometheus-pushgateway openssl:openssl chromium:chromium

.PHONY: help demo demo-delta test all-tests test-fast test-oldest matrix compatibility simulate fuzz lint bench dashboards faults dependencies soak pictures stack test-connectors java system-packages clean

help:
	@sed -n 's/^## //p' Makefile

## make demo       eight queries in one driver; one dies; watch the page arrive
demo: java $(VENV)/.spark
	@$(BIN)/querypulse demo $(ARGS)

## make demo-delta the same on a Kafka broker and Delta Lake, fetched from Maven Central
demo-delta: java $(CONNECTORS)/.spark
	@$(CONNECTORS)/bin/python -m querypulse.examples.delta $(ARGS)

## make test       all tests, real Spark and real Prometheus tools included
test: system-packages $(VENV)/.tests $(VENV)/spark.jsa
	@$(MAKE) all-tests; failed=$$?; $(WRITE_FAULTS); exit $$failed

all-tests:
	$(BIN)/python -Im pytest -m "not spark and not docker" $(SIDE_BY_SIDE) $(ARGS) $(OR_NONE)
	$(call test_on_spark,$(BIN)/python -Im pytest $(call files_with,spark|docker) -m "(spark or docker) and not (kafka or delta or iceberg)",$(THREE_DRIVERS)) $(OR_NONE)
	$(MAKE) test-connectors

## make test-fast  tests without Java and browser that take no seconds
test-fast: $(VENV)/.tests
	$(BIN)/python -Im pytest -m "not spark and not docker and not browser and not slow" \
	  $(SIDE_BY_SIDE) $(ARGS)

## make test-connectors  Kafka, Delta and Iceberg, each on the newest Spark it exists for
test-connectors: java $(CONNECTORS)/.tests $(ICEBERG)/.tests
	$(call test_on_spark,$(CONNECTORS)/bin/python -Im pytest $(call files_with,kafka|delta) -m "(kafka or delta) and not iceberg",$(TWO_DRIVERS)) $(OR_NONE)
	$(call test_on_spark,$(ICEBERG)/bin/python -Im pytest $(call files_with,iceberg) -m iceberg) $(OR_NONE)

## make test-oldest  signals, outcomes and the demo's failure on the oldest Spark supported
test-oldest: java $(OLDEST)/.tests $(OLDEST)/spark.jsa
	$(call test_on_spark,$(OLDEST)/bin/python -Im pytest $(OLDEST_TESTS),$(THREE_DRIVERS))

## make matrix     these and more on every Spark supported, and on the Pythons that are installed (or on MATRIX)
matrix: java $(foreach env,$(MATRIX),$(env)/.tests $(env)/spark.jsa)
	@mkdir -p build/matrix; failed=0; \
	for env in $(MATRIX); do \
	  $$env/bin/python -Im pytest $(MATRIX_TESTS) $(THREE_DRIVERS) $(ARGS) \
	    --junit-xml=build/matrix/$$($$env/bin/python -c "$(NAMES_RUN)").xml || failed=1; \
	done; $(MAKE) compatibility && exit $$failed

## make compatibility  write docs/compatibility.md from the results of make matrix
compatibility:
	cd tests && ../$(BIN)/python -m support.compatibility_page ../build/matrix > ../docs/compatibility.md

## make simulate   random histories in a simulated world that knows the truth, for MINUTES
simulate: $(VENV)/.tests
	$(BIN)/python -m tests.simulation --minutes $(MINUTES) $(ARGS)

## make fuzz       coverage-guided search for inputs that break a promise, MINUTES for each target
fuzz: $(VENV)/.fuzz
	cd tests && for target in $(FUZZ_TARGETS); do \
	  ../$(BIN)/python -m fuzzing $$target --minutes $(MINUTES) $(ARGS) || exit; done

## make lint       wording, layout and ruff in the checkout, mypy --strict on the wheel, its examples and the tools
lint: $(VENV)/.lint
	$(BIN)/python -m tools.wording
	$(BIN)/python -m tools.architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/wheel build/lib && $(BIN)/python -m build --quiet --wheel --outdir build/wheel/dist .
	$(BIN)/python -m zipfile -e build/wheel/dist/*.whl build/wheel/site
	cp -R examples build/wheel/site/querypulse
	cd build/wheel/site && MYPYPATH=. ../../../$(BIN)/mypy --config-file ../../../pyproject.toml \
	  --namespace-packages --explicit-package-bases -p querypulse
	MYPYPATH=build/wheel/site $(BIN)/mypy --strict tests/repository/typed_example.py
	MYPYPATH=.:build/wheel/site $(BIN)/mypy --namespace-packages --explicit-package-bases -p tools

## make bench      what querypulse costs, against stock PySpark, a peer and the floor
bench: java system-packages $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks.run

## make dashboards write rules and dashboards with their generators
dashboards: $(VENV)/.tests
	for tool in $(GENERATORS); do $(BIN)/python -m tools.$$tool || exit; done
	cd tests && ../$(BIN)/python -m support.metrics_page > ../docs/metrics.md

## make soak       healthy queries for SOAK_MINUTES: no alert, nothing left behind
soak: java $(VENV)/.tests
	@SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/python -Im pytest -m soak \
	  -o faulthandler_timeout=$$(( $(SOAK_MINUTES) * 60 + 900 )) $(ARGS); \
	  failed=$$?; $(WRITE_FAULTS); exit $$failed

## make faults     write docs/faults.md from the results kept so far, as make test and make soak do
faults:
	cd tests && ../$(BIN)/python -m support.faults_page > ../docs/faults.md

## make dependencies  write the hashes of the versions in constraints.txt to requirements/
dependencies: $(VENV)/.lint
	$(BIN)/python -m tools.dependencies

## make pictures   draw the pictures of README and docs from a real driver
pictures: $(VENV)/.tests
	$(BIN)/python -m tools.pictures
	PICTURES_FOLDER=docs/pictures $(BIN)/python -Im pytest tests/spark/test_spark_grafana.py -k drawn

## make stack      a demo driver, Prometheus, Alertmanager and Grafana in containers
stack: $(VENV)/.spark
	rm -rf build/stack
	$(BIN)/querypulse dashboards export build/stack
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/stack/compose/driver/wheels .
	docker compose --file build/stack/compose/compose.yaml up --build

## make clean      remove what the other targets made
clean:
	rm -rf $(VENV) .venv-spark-* $(BENCH) build *.egg-info

java:
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || { \
	  echo "Spark needs Java, 17 or newer for Spark 4: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; }

# As root, install the system packages that tests need, and print them; otherwise pytest names
# each test that it leaves out and what to install.
system-packages:
	@for pair in $(APT_PACKAGES); do \
	  package=$${pair%%:*}; command=$${pair##*:}; \
	  command -v $$command >/dev/null && continue; \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "make test: installing the system package $$package, for $$command"; \
	    [ -n "$$updated" ] || { apt-get update -qq; updated=yes; }; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package >/dev/null; \
	  else \
	    echo "make test: $$command is not installed (Debian: $$package); its tests are left out"; \
	  fi; \
	done

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each purpose: the demo does not wait for test tools.
$(VENV)/.spark: $(BIN)/python pyproject.toml requirements/build.txt requirements/spark.txt
	@echo "installing querypulse with PySpark into $(VENV) (the first time takes a while)"
	$(HASHED) requirements/build.txt
	$(HASHED) requirements/spark.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/.tests: $(VENV)/.spark requirements/tests.txt
	$(HASHED) requirements/tests.txt
	@touch $@

# Drivers of tests start in half the time with it, and as before without it.
%/spark.jsa: %/.tests
	-cd tests && ../$*/bin/python -m support.class_archive ../$@

# The name of another environment holds its Spark and, after a dash, its interpreter. That has the
# newest packages: no version of PyArrow exists for all interpreters.
SPARK = $(firstword $(subst -, ,$*))
OTHER_PYTHON = $(or $(word 2,$(subst -, ,$*)),$(PYTHON))
OTHER_PIP = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
  $(if $(word 2,$(subst -, ,$*)),,--constraint build/constraints-$(SPARK).txt)

.venv-spark-%/.spark: pyproject.toml constraints.txt
	@echo "installing querypulse with PySpark $(SPARK) into $(@D) (the first time takes a while)"
	$(OTHER_PYTHON) -m venv $(@D)
	@mkdir -p build && grep -v '^pyspark==\|^py4j==' constraints.txt > build/constraints-$(SPARK).txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(OTHER_PIP) --editable . pyspark==$(SPARK)
	@touch $@

.venv-spark-%/.tests: .venv-spark-%/.spark
	$(OTHER_PIP) --group tests pyspark==$(SPARK)
	@touch $@

.PRECIOUS: .venv-spark-%/.spark .venv-spark-%/.tests

$(BENCH)/.bench: PIP_BENCH := $(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check
$(BENCH)/.bench: pyproject.toml constraints.txt
	@echo "installing querypulse, PySpark and pyspark-prometheus into $(BENCH) (the first time takes a while)"
	$(PYTHON) -m venv $(BENCH)
	$(PIP_BENCH) --upgrade pip
	$(PIP_BENCH) --constraint constraints.txt --editable '.[replay]' --group bench
	@touch $@

$(VENV)/.fuzz: $(VENV)/.tests requirements/fuzz.txt
	$(HASHED) requirements/fuzz.txt
	@touch $@

# mypy reads what the code imports, so the packages must be installed, too.
$(VENV)/.lint: $(VENV)/.tests requirements/lint.txt
	$(HASHED) requirements/lint.txt
	@touch $@
