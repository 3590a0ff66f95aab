#!/bin/bash
# EMR bootstrap action: installs querypulse on every node and switches auto-attach on.
# Arguments: the wheel in S3, and the Python of Spark's drivers (default: python3).
# docs/yarn.md says what else the cluster needs.
set -u
wheel=${1:?the first argument is the S3 address of the wheel}
python=${2:-python3}

install() {
  local folder scripts
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "querypulse: $python is older than 3.10" >&2
    return 1
  }
  folder=$(mktemp -d) && aws s3 cp "$wheel" "$folder/" || return 1
  sudo "$python" -m pip install --disable-pip-version-check "$folder/${wheel##*/}" || return 1
  scripts=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))') || return 1
  sudo "$scripts/querypulse" auto-attach on
}

# A cluster whose bootstrap action fails does not start; jobs matter more than their monitor.
install || echo "querypulse: not installed from $wheel; jobs start without it" >&2
exit 0
