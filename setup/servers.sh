#!/usr/bin/env bash
# Builds the missing binaries of the servers of the campaign quick, so that the first run does not have to wait for them.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

export PYTHONPATH=$PWD
python=${PYTHON:-python3}
missing=$("$python" setup/servers.py 2> /dev/null) || exit 0 # if $python is missing, setup/python.sh reports it
[ -n "$missing" ] || exit 0
begin "Binaries of $missing"
# shellcheck disable=SC2086 # words
"$python" setup/servers.py $missing
