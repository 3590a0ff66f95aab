#!/bin/bash
# Databricks cluster-scoped init script: installs querypulse on the driver and switches auto-attach on.
# docs/databricks.md says what else the cluster needs. Edit the path, or give it as the argument.
set -u
wheels=${1:-/Volumes/main/tools/querypulse}
bin=/databricks/python/bin

# Executors need nothing.
[ "${DB_IS_DRIVER:-TRUE}" = TRUE ] || exit 0
"$bin/pip" install --disable-pip-version-check --no-index --find-links "$wheels" querypulse \
  && "$bin/querypulse" auto-attach on \
  || { echo "querypulse: not installed from $wheels; jobs would run without their monitor" >&2; exit 1; }
