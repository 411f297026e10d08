#!/usr/bin/env bash
# Checks the locked dependencies of each language for known vulnerabilities. The exit code is 1 if a dependency is vulnerable. It is
# 2 if a tool or a database of vulnerabilities is not available. A message then says which dependencies were not checked.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

tools=$PWD/.tools/audit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
found=0 unknown=0

# audit WHAT VULNERABLE MARK COMMAND...: run a tool. VULNERABLE is the tool's exit code if it finds
# vulnerabilities. Some tools end with the same exit code if they could not check anything. So the
# tool has found vulnerabilities only if the output also matches MARK.
audit() {
  local what=$1 vulnerable=$2 mark=$3 code=0
  shift 3
  "$@" > "$log" 2>&1 || code=$?
  if [ "$code" = 0 ]; then echo "ok          $what"
  elif [ "$code" = "$vulnerable" ] && grep -qE "$mark" "$log"; then
    echo "VULNERABLE  $what"
    sed 's/^/            /' "$log"
    found=1
  else not_audited "$what" "$(grep -v '^ *$' "$log" | tail -n 1)"
  fi
}
not_audited() { echo "NOT AUDITED $1: $2"; unknown=1; }

# built NAME COMMAND...: succeed if the tool NAME is installed. Otherwise build it by COMMAND, which uses the dependency versions of
# the tool's release.
built() {
  local name=$1
  shift
  command -v "$name" > /dev/null || [ -x "$tools/bin/$name" ] || "$@" > "$log" 2>&1
}
PATH="$tools/bin:$PATH"

if .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$tools/python" pip-audit==2.10.1 > "$log" 2>&1; then
  for lock in requirements.lock setup/uv.txt; do
    audit "Python: $lock" 1 'Found [0-9]+ known vulnerabilit' \
      env PYTHONPATH="$tools/python" .venv/bin/python -m pip_audit --requirement "$lock" --require-hashes --disable-pip --progress-spinner off
  done
else not_audited "Python: requirements.lock" "pip-audit could not be installed ($(tail -n 1 "$log"))"
fi

if built cargo-audit cargo install --quiet --locked --root "$tools" cargo-audit@0.22.2; then
  for lock in servers/*/Cargo.lock setup/oha/Cargo.lock; do audit "Rust: $lock" 1 'vulnerabilit(y|ies) found' cargo-audit audit --quiet --file "$lock"; done
else not_audited "Rust: servers/*/Cargo.lock, setup/oha/Cargo.lock" "cargo-audit could not be built ($(tail -n 1 "$log"))"
fi

if built govulncheck env GOBIN="$tools/bin" go install golang.org/x/vuln/cmd/govulncheck@v1.8.0; then
  for module in servers/*/go.mod examples/*/go.mod; do
    audit "Go: ${module%/go.mod}" 3 'Vulnerability #1' env -C "${module%/go.mod}" govulncheck ./...
  done
  for module in setup/k6/*/go.mod; do
    audit "Go: ${module%/go.mod}" 3 'Vulnerability #1' env -C "${module%/go.mod}" govulncheck tool
  done
else not_audited "Go: servers/*/go.mod" "govulncheck could not be built ($(tail -n 1 "$log"))"
fi

[ "$found" = 0 ] || exit 1
[ "$unknown" = 0 ] || exit 2
