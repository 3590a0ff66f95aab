#!/bin/bash
# EMR bootstrap action: installs querypulse on every node and switches auto-attach on.
# Arguments: the folder of wheels in S3, and the Python of Spark's drivers (default: python3).
# docs/yarn.md says what else the cluster needs.
set -u
wheels=${1:?the first argument is the S3 address of the folder of wheels}
python=${2:-python3}

install() {
  local folder scripts
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "querypulse: $python is older than 3.10" >&2
    return 1
  }
  folder=$(mktemp -d) && aws s3 cp --recursive "$wheels" "$folder/" || return 1
  sudo "$python" -m pip install --disable-pip-version-check --no-index --find-links "$folder" querypulse || return 1
  scripts=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))') || return 1
  sudo "$scripts/querypulse" auto-attach on
}

install || { echo "querypulse: not installed from $wheels; jobs would run without their monitor" >&2; exit 1; }
