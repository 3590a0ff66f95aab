#!/bin/bash
# Databricks cluster-scoped init script: installs querypulse on the driver and switches auto-attach on.
# docs/databricks.md says what else the cluster needs. Edit the path, or give it as the argument.
set -u
wheel=${1:-/Volumes/main/tools/querypulse-0.1.0-py3-none-any.whl}
bin=/databricks/python/bin

install() {
  "$bin/pip" install --disable-pip-version-check "$wheel" && "$bin/querypulse" auto-attach on
}

# Executors need nothing.
[ "${DB_IS_DRIVER:-TRUE}" = TRUE ] || exit 0
# A cluster whose init script fails does not start; jobs matter more than their monitor.
install || echo "querypulse: not installed from $wheel; jobs start without it" >&2
exit 0
