#!/usr/bin/env bash
# Creates .venv from requirements.lock and installs the lab into it. pip installs uv, and uv installs the rest; both check hashes.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

python=${PYTHON:-python3} done=.venv/.setup
stale() {
  local source
  for source in requirements.lock pyproject.toml setup/uv.txt setup/python.sh setup/compiled.py; do
    [ "$done" -nt "$source" ] || return 0
  done
  return 1
}
stale || exit 0

command -v "$python" > /dev/null || fail "$python is not installed: install Python 3.11 or newer (apt-get install python3 python3-venv)."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old: the lab needs Python 3.11 or newer; name one with make PYTHON=python3.12."
begin "Python packages into .venv"
if ! .venv/bin/python -m pip --version 2> /dev/null; then # .venv is missing, or its creation was interrupted
  "$python" -m venv --clear .venv 2> /dev/null || {
    rm -rf .venv
    echo "$python cannot make a virtual environment: install python3-venv (apt-get install python3-venv)"
    exit 2
  }
fi
pip=(.venv/bin/python -m pip --disable-pip-version-check)
uv=(.venv/bin/uv pip install --quiet --python .venv/bin/python)

# uv does not read pip's configuration, so pass it pip's index and certificates.
configured() { "${pip[@]}" config list | sed -n "s/^[^ ]*\.$1='\(.*\)'$/\1/p" | head -n 1; }
index=$(configured index-url) cert=$(configured cert)
[ -z "$index" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
[ -z "$cert" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$cert}

"${pip[@]}" install --quiet --require-hashes --no-deps -r setup/uv.txt
"${uv[@]}" --require-hashes -r requirements.lock
"${uv[@]}" --no-deps --no-build-isolation --editable .
# Store compiled modules now. If Python may not write them later, each start of a program would compile pandas and others again.
env -u PYTHONDONTWRITEBYTECODE PYTHONPATH=. .venv/bin/python setup/compiled.py
touch "$done"
