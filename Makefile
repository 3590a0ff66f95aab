# Every target installs what it needs into .venv; only Python and, for Spark, Java must be
# installed first. `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Other environments: .venv-spark-X has Spark X, .venv-spark-X-pythonY another Python as well.
OLDEST := .venv-spark-3.5.9
NEWEST := .venv-spark-4.3.0
# The trigger realTime needs Spark 4.2, and Kafka's connector does not exist for a newer one.
REAL_TIME := .venv-spark-4.2.0
BENCH := .venv-bench
# The oldest versions of querypulse's dependencies that pyproject.toml allows.
OLDEST_DEPENDENCIES := .venv-oldest
# And the newest that an index has, which constraints.txt may not have yet.
NEWEST_DEPENDENCIES := .venv-newest
runs = $(shell $(1) -c "" 2>/dev/null && echo yes)
OTHER_PYTHONS := $(if $(call runs,python3.10),.venv-spark-4.0.5-python3.10) \
  $(if $(call runs,python3.12),.venv-spark-4.2.0-python3.12) \
  $(if $(call runs,python3.13),.venv-spark-4.2.0-python3.13)
MATRIX := $(OLDEST) .venv-spark-4.0.5 $(VENV) $(REAL_TIME) $(NEWEST) $(OTHER_PYTHONS)

# Which tests a target runs; pyproject.toml says what the markers mean.
FAST := not (spark or slow or thorough or nightly)
WITHOUT_SPARK := not (spark or thorough or nightly)
ON_SPARK := spark and not (thorough or nightly)
ON_OLDEST_AND_NEWEST := spark and every_spark and not (nightly or kafka or delta or soak)
ON_OTHER_SPARK := spark and (every_spark or not thorough) and not (nightly or kafka or delta or soak)
REST_WITHOUT_SPARK := thorough and not (spark or nightly or soak)
REST_ON_SPARK := thorough and spark and not (nightly or soak or newest)
SPARK_FOLDERS := $(addprefix tests/,spark connectors commands examples faults)
# Many tests wait for sockets and processes, so there are more processes than cores. Those with
# Spark share a driver in each process, and the tests of a file share its expensive fixtures.
SIDE_BY_SIDE := -n 3 --dist worksteal
DRIVERS_SIDE_BY_SIDE := $(SPARK_FOLDERS) -n 3 --dist loadfile --no-loadscope-reorder
# A stage: its name, environment, and arguments of pytest. Every stage runs; the end names those that
# failed. ARGS may choose tests of one stage only; pytest ends with 5 where there are none. Results
# of a part are not kept.
unexport failed ran
space := $(subst ,, )
stage = echo; echo "== make $@, $(1)"; \
  $(2)/bin/python -Im pytest $(if $(ARGS),,--junit-xml=build/results/$@-$(subst $(space),-,$(1)).xml) $(3) $(ARGS); \
  status=$$?; if [ $$status != 5 ] || [ -z "$(ARGS)" ]; then ran=yes; \
  [ $$status = 0 ] || failed="$$failed, $(1)"; fi;
report = [ -n "$$ran" ] || failed=", no test was chosen"; \
  [ -z "$$failed" ] || { echo "make $@: failed: $${failed\#, }" >&2; exit 1; }
# How long `make simulate` searches for a history that breaks a promise, and `make fuzz` for an input.
MINUTES := 5
FUZZ_TARGETS := events state http settings
# How long `make soak` runs.
SOAK_MINUTES := 30
APT_PACKAGES := prometheus:promtool prometheus-alertmanager:prometheus-alertmanager \
  prometheus-pushgateway:prometheus-pushgateway chromium:chromium

# Compiled test modules are kept: each process of a run imports all of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-delta test test-fast test-oldest test-newest test-rest test-all nightly matrix simulate fuzz soak lint bench dashboards faults dependencies wheels sbom pictures stack clean java system-packages

help:
	@sed -n 's/^## //p' Makefile

## make demo       eight queries in one driver; one dies; watch the page arrive
demo: java $(VENV)/.demo
	@$(BIN)/querypulse demo $(ARGS)

## make demo-delta the same on a Kafka broker and Delta Lake, fetched from Maven Central
demo-delta: java $(VENV)/.demo
	@$(BIN)/python -m querypulse.examples.delta $(ARGS)

## make test       what matters, in ten minutes: all fast tests, real Spark, one Kafka and Delta incident
test: java $(VENV)/.dev $(VENV)/spark.jsa
	@$(call stage,1 of 2 without Spark,$(VENV),-m "$(WITHOUT_SPARK)" $(SIDE_BY_SIDE)) \
	$(call stage,2 of 2 on Spark,$(VENV),-m "$(ON_SPARK)" $(DRIVERS_SIDE_BY_SIDE)) \
	$(report)

## make test-fast  tests without Java that take no seconds, in a minute
test-fast: $(VENV)/.dev
	$(BIN)/python -Im pytest -m "$(FAST)" $(SIDE_BY_SIDE) $(ARGS)

## make test-oldest  the fast tests on the oldest versions of the dependencies that pyproject.toml allows
test-oldest: $(OLDEST_DEPENDENCIES)/.dev
	$(OLDEST_DEPENDENCIES)/bin/python -Im pytest -m "$(FAST)" $(SIDE_BY_SIDE) $(ARGS)

## make test-newest  the fast tests on the newest versions of the dependencies that an index has
test-newest: $(NEWEST_DEPENDENCIES)/.dev
	$(NEWEST_DEPENDENCIES)/bin/python -Im pytest -m "$(FAST)" $(SIDE_BY_SIDE) $(ARGS)

## make test-all   make test, and everything else worth waiting for, on the oldest and newest Spark too
test-all:
	@ran=yes; $(MAKE) test || failed=", make test"; $(MAKE) test-rest || failed="$$failed, make test-rest"; $(report)

## make test-rest  what make test-all adds to make test
test-rest: java system-packages $(VENV)/.dev $(VENV)/spark.jsa $(OLDEST)/.dev $(OLDEST)/spark.jsa $(NEWEST)/.dev $(NEWEST)/spark.jsa $(OLDEST_DEPENDENCIES)/.dev
	@$(call stage,1 of 5 without Spark,$(VENV),-m "$(REST_WITHOUT_SPARK)" $(SIDE_BY_SIDE)) \
	$(call stage,2 of 5 on Spark,$(VENV),-m "$(REST_ON_SPARK)" $(DRIVERS_SIDE_BY_SIDE)) \
	$(call stage,3 of 5 on the oldest Spark,$(OLDEST),-m "$(ON_OLDEST_AND_NEWEST) and not newest" $(DRIVERS_SIDE_BY_SIDE)) \
	$(call stage,4 of 5 on the newest Spark,$(NEWEST),-m "$(ON_OLDEST_AND_NEWEST)" $(DRIVERS_SIDE_BY_SIDE)) \
	$(call stage,5 of 5 on the oldest dependencies,$(OLDEST_DEPENDENCIES),-m "$(FAST)" $(SIDE_BY_SIDE)) \
	$(report)

## make nightly    long lives and stories, mutations, new examples, histories and dependencies, for some hours
nightly: java system-packages $(VENV)/.dev $(VENV)/spark.jsa $(REAL_TIME)/.dev $(NEWEST_DEPENDENCIES)/.dev
	@export NEW_EXAMPLES=1 ran=yes; \
	$(call stage,1 of 4 without Spark,$(VENV),-m "nightly and not spark" $(SIDE_BY_SIDE)) \
	$(call stage,2 of 4 on Spark,$(VENV),-m "nightly and spark" $(DRIVERS_SIDE_BY_SIDE)) \
	$(call stage,3 of 4 realTime on Kafka,$(REAL_TIME),tests/connectors -m "nightly and kafka") \
	$(call stage,4 of 4 on the newest dependencies,$(NEWEST_DEPENDENCIES),-m "$(FAST)" $(SIDE_BY_SIDE)) \
	$(MAKE) simulate || failed="$$failed, simulate"; \
	$(report)

## make matrix     the tests that depend on Spark, on every Spark supported and the Pythons that are installed (or on MATRIX)
matrix: java $(foreach env,$(MATRIX),$(env)/.dev $(env)/spark.jsa)
	@$(foreach env,$(MATRIX),$(call stage,$(env:.venv-%=%),$(env),-m "$(ON_OTHER_SPARK)" $(DRIVERS_SIDE_BY_SIDE))) \
	$(report)

## make simulate   random histories in a simulated world that knows the truth, for MINUTES
simulate: $(VENV)/.dev
	$(BIN)/python -m tests.simulation --minutes $(MINUTES) $(ARGS)

## make fuzz       coverage-guided search for inputs that break a promise, MINUTES for each target
fuzz: $(VENV)/.fuzz
	cd tests && for target in $(FUZZ_TARGETS); do \
	  ../$(BIN)/python -m fuzzing $$target --minutes $(MINUTES) $(ARGS) || exit; done

## make soak       healthy queries for SOAK_MINUTES: no alert, nothing left behind; then a death and a hang
soak: java $(VENV)/.dev
	@export SOAK_MINUTES=$(SOAK_MINUTES); \
	$(call stage,soak,$(VENV),tests/faults -m soak -s -o faulthandler_timeout=$$(( $(SOAK_MINUTES) * 60 + 1800 ))) \
	$(report)

## make faults     write docs/internals/faults.md from the results of the last test-all, nightly and soak
faults: $(VENV)/.dev
	$(BIN)/python -m tools.faults build/results/*.xml > build/faults.md && mv build/faults.md docs/internals/faults.md

## make lint       wording, links, layout and ruff in the checkout, mypy --strict on the wheel, its examples and the tools
lint: $(VENV)/.dev
	$(BIN)/python -m tools.wording
	$(BIN)/python -m tools.links
	$(BIN)/python -m tools.architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/wheel build/lib && $(BIN)/python -m build --quiet --no-isolation --wheel --outdir build/wheel/dist .
	$(BIN)/python -m zipfile -e build/wheel/dist/*.whl build/wheel/site
	cp -R examples build/wheel/site/querypulse
	cd build/wheel/site && MYPYPATH=. ../../../$(BIN)/mypy --config-file ../../../pyproject.toml \
	  --namespace-packages --explicit-package-bases -p querypulse
	MYPYPATH=build/wheel/site $(BIN)/mypy --strict tests/repository/typed_example.py
	MYPYPATH=.:build/wheel/site $(BIN)/mypy --namespace-packages --explicit-package-bases -p tools

## make bench      what querypulse costs, against stock PySpark, a peer and the floor
bench: java system-packages $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks.run

## make dashboards write docs/settings.md, docs/metrics.md, the Operator's resources, and the next steps of the Prometheus rules
dashboards: $(VENV)/.dev
	$(BIN)/python -m tools.settings
	cd tests && ../$(BIN)/python -m support.metrics_page > ../docs/metrics.md
	cd tests && ../$(BIN)/python -m support.rule_steps
	$(BIN)/python -m tools.kubernetes

## make dependencies  write the hashes of the versions in constraints.txt to requirements/
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
  --no-header --no-annotate --constraint constraints.txt
dependencies: $(BIN)/uv
	$(COMPILE) --group build --output-file requirements/build.txt
	$(COMPILE) pyproject.toml --extra spark --output-file requirements/demo.txt
	$(COMPILE) pyproject.toml --extra spark --group dev --output-file requirements/dev.txt

## make wheels     build/wheels: querypulse, all it needs and its extras, to install without an index on Linux, for ARCH
ARCH := x86_64
# pip takes the markers of this Python, not those of the other version: tomli is named.
wheels: $(VENV)/.dev
	rm -rf build/wheels build/lib
	$(BIN)/python -m build --quiet --no-isolation --wheel --outdir build/wheels .
	for version in 3.10 3.11 3.12 3.13; do $(BIN)/python -m pip download --quiet --only-binary :all: \
	  --platform manylinux2014_$(ARCH) --platform manylinux_2_17_$(ARCH) \
	  --python-version $$version --constraint constraints.txt --dest build/wheels \
	  "$$(echo build/wheels/querypulse-*.whl)[replay,otlp]" tomli || exit; done

## make sbom       build/querypulse.cdx.json: what the wheel requires, with versions and hashes (CycloneDX)
sbom: $(BIN)/uv
	$(subst 3.11,3.10,$(COMPILE)) pyproject.toml --output-file build/runtime.txt
	$(BIN)/uv tool run --constraints constraints.txt --from cyclonedx-bom cyclonedx-py requirements build/runtime.txt \
	  --pyproject pyproject.toml --mc-type library --output-reproducible --output-file build/querypulse.cdx.json

## make pictures   screenshots of the status page, for README and docs
pictures: $(VENV)/.dev
	$(BIN)/python -m tools.pictures

## make stack      a demo driver, Prometheus, Alertmanager and Grafana in containers
stack: $(VENV)/.demo
	rm -rf build/stack
	$(BIN)/querypulse dashboards export build/stack
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/stack/compose/driver/wheels .
	docker compose --file build/stack/compose/compose.yaml up --build

## make clean      remove what the other targets made
clean:
	rm -rf $(VENV) .venv-spark-* $(OLDEST_DEPENDENCIES) $(NEWEST_DEPENDENCIES) $(BENCH) build *.egg-info

java:
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || { \
	  echo "Spark needs Java, 17 or newer for Spark 4: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; }

# As root, install the system packages that tests need, and print them; otherwise pytest says which
# tests it leaves out and what to install.
system-packages:
	@for pair in $(APT_PACKAGES); do \
	  package=$${pair%%:*}; command=$${pair##*:}; \
	  command -v $$command >/dev/null && continue; \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "make: installing the system package $$package, for $$command"; \
	    [ -n "$$updated" ] || { apt-get update -qq; updated=yes; }; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package >/dev/null; \
	  else \
	    echo "make: $$command is not installed (Debian: $$package); its tests are left out"; \
	  fi; \
	done

# -- environments -----------------------------------------------------------------------------
# pip installs uv and what builds, uv the rest; both check the hash of every file.

INSTALL = $(BIN)/uv pip install --quiet --python $(@D)

$(BIN)/uv: requirements/build.txt
	@echo "installing into $(VENV) (the first time takes a minute or two)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/build.txt
	@touch $@

# One stamp for each purpose: the demo does not wait for test tools.
$(VENV)/.demo: $(BIN)/uv pyproject.toml requirements/demo.txt
	$(INSTALL) --no-build-isolation --require-hashes --requirement requirements/demo.txt
	$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	$(INSTALL) --no-build-isolation --require-hashes --requirement requirements/dev.txt
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(INSTALL) --constraint constraints.txt --group fuzz
	@touch $@

# The name of another environment holds its Spark and, after a dash, its interpreter. That has the
# newest packages: no version of PyArrow exists for all interpreters.
SPARK = $(firstword $(subst -, ,$*))
OTHER_PYTHON = $(word 2,$(subst -, ,$*))

.venv-spark-%/.dev: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "installing querypulse with PySpark $(SPARK) into $(@D) (the first time takes a minute or two)"
	$(or $(OTHER_PYTHON),$(PYTHON)) -m venv $(@D)
	@mkdir -p build && grep -v '^pyspark==\|^py4j==' constraints.txt > build/constraints-$(SPARK).txt
	$(INSTALL) $(if $(OTHER_PYTHON),,--constraint build/constraints-$(SPARK).txt) --group tests --editable . pyspark==$(SPARK)
	@touch $@

# All else has the versions of constraints.txt, except what these require themselves. Of the oldest,
# without the extra otlp: the protobuf that it allows is too old for Spark Connect in the tests.
EDGE = $(@D:.venv-%=%)
RESOLUTION = $(if $(filter oldest,$(EDGE)),lowest-direct,highest --extra otlp)
$(OLDEST_DEPENDENCIES)/.dev $(NEWEST_DEPENDENCIES)/.dev: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "installing the $(EDGE) dependencies of querypulse into $(@D) (the first time takes a minute or two)"
	$(PYTHON) -m venv $(@D)
	@mkdir -p build
	$(BIN)/uv pip compile --quiet --python $(@D) --resolution $(RESOLUTION) --no-header --no-annotate --upgrade pyproject.toml --extra replay --output-file build/$(EDGE).txt
	sed 's/==.*//; s/[-_]/[-_]/g; s/.*/^&==/' build/$(EDGE).txt | grep -vif - constraints.txt > build/constraints-$(EDGE).txt
	$(INSTALL) --constraint build/constraints-$(EDGE).txt --requirement build/$(EDGE).txt --group tests --editable .
	@touch $@

$(BENCH)/.bench: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "installing querypulse, PySpark and pyspark-prometheus into $(BENCH) (the first time takes a minute or two)"
	$(PYTHON) -m venv $(BENCH)
	$(INSTALL) --constraint constraints.txt --editable '.[replay]' --group bench
	@touch $@

# Drivers of tests start in half the time with it, and as before without it.
%/spark.jsa: %/.dev
	@echo "starting Spark once, so that the drivers of tests start in half the time"
	@-cd tests && ../$*/bin/python -m support.class_archive ../$@ 2>/dev/null

.PRECIOUS: .venv-spark-%/.dev
