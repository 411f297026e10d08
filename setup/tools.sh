#!/usr/bin/env bash
# Finds k6 1.x, wrk and nginx, or installs them: k6 with Go into .tools/, wrk and nginx from the system's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${K6_VERSION:-v1.8.1}
fail() { echo "Error: $*" >&2; exit 2; }

has_k6() {
  local k6
  for k6 in .tools/k6 "$(command -v k6 || true)"; do
    [ -x "$k6" ] && "$k6" version 2> /dev/null | grep -q '^k6 v1\.' && return 0
  done
  return 1
}

if ! has_k6; then
  command -v go > /dev/null || fail "k6 1.x is not installed and Go is not there to build it: install k6 or Go (go.dev/dl)."
  echo "Building k6 $version into .tools/ (about two minutes) ..."
  mkdir -p .tools
  GOBIN="$PWD/.tools" go install "go.k6.io/k6@$version" > .tools/k6.log 2>&1 ||
    fail "k6 $version could not be built: $(tail -n 1 .tools/k6.log)."
fi

has() { PATH="$PATH:/usr/local/sbin:/usr/sbin" command -v "$1" > /dev/null; }
missing=()
has wrk || missing+=(wrk)
has nginx || missing+=(nginx-light)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then as_root=()
elif sudo -n true 2> /dev/null; then as_root=(sudo -n)
else fail "${missing[*]} must be installed and this user may not: run apt-get install ${missing[*]} as root."
fi
command -v apt-get > /dev/null || fail "${missing[*]} must be installed: use your system's packages."
echo "Installing ${missing[*]} ..."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# nginx's package starts a server on port 80 unless a policy forbids it: the lab starts its own.
{
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"
} > "$log" 2>&1 || fail "apt-get could not install ${missing[*]}: $(tail -n 1 "$log")."
