#!/usr/bin/env bash
# Makes .venv from requirements.lock (hashes checked) and installs the lab into it.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
fail() { echo "Error: $*" >&2; exit 2; }

command -v "$python" > /dev/null || fail "$python is not installed: install Python 3.11 or newer (apt-get install python3 python3-venv)."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old: the lab needs Python 3.11 or newer; name one with make PYTHON=python3.12."
if [ ! -x .venv/bin/python ]; then
  "$python" -m venv .venv 2> /dev/null || {
    rm -rf .venv
    fail "$python cannot make a virtual environment: install python3-venv (apt-get install python3-venv)."
  }
fi
echo "Installing Python packages into .venv (about two minutes) ..."
log=.venv/setup.log
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
{
  "${pip[@]}" --require-hashes -r requirements.lock
  "${pip[@]}" --no-deps --no-build-isolation --editable .
} > "$log" 2>&1 || fail "pip could not install the packages of requirements.lock: $(tail -n 1 "$log") (see $log)."
