#!/bin/bash
# Dataproc initialization action: installs querypulse on every node and switches auto-attach on.
# Metadata of the cluster: querypulse-wheels, the folder of wheels in Cloud Storage, and querypulse-python,
# the Python of Spark's drivers (default: /opt/conda/default/bin/python).
# docs/yarn.md says what else the cluster needs.
set -u

metadata() {
  /usr/share/google/get_metadata_value "attributes/$1"
}

install() {
  local folder scripts
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "querypulse: $python is older than 3.10" >&2
    return 1
  }
  folder=$(mktemp -d) && gcloud storage cp "$wheels/*" "$folder/" || return 1
  "$python" -m pip install --disable-pip-version-check --no-index --find-links "$folder" querypulse || return 1
  scripts=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))') || return 1
  "$scripts/querypulse" auto-attach on
}

wheels=$(metadata querypulse-wheels)
python=$(metadata querypulse-python) || python=
python=${python:-/opt/conda/default/bin/python}
install || {
  echo "querypulse: not installed from ${wheels:-the metadata querypulse-wheels}; jobs would run without their monitor" >&2
  exit 1
}
