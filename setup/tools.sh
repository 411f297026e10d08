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
has_postgres() { has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' > /dev/null; }
missing=()
has wrk || missing+=(wrk)
has nginx || missing+=(nginx-light)
has_postgres || missing+=(postgresql)
[ ${#missing[@]} -gt 0 ] || exit 0

# Without nginx or PostgreSQL everything runs but what needs them; without wrk no campaign does.
stop() {
  has wrk && { echo "Warning: $*; what needs them will fail." >&2; exit 0; }
  fail "$*."
}
command -v apt-get > /dev/null || stop "${missing[*]} must be installed with your system's packages"
if [ "$(id -u)" = 0 ]; then as_root=()
elif sudo -n true 2> /dev/null; then as_root=(sudo -n)
else stop "${missing[*]} must be installed and this user may not: run apt-get install ${missing[*]} as root"
fi
echo "Installing ${missing[*]} ..."
log=$(mktemp)
no_cluster=/etc/postgresql-common/createcluster.d/web-bench-lab.conf
trap 'rm -f "$log"; "${as_root[@]}" rm -f "$no_cluster"' EXIT
# The packages of nginx and PostgreSQL start a server unless a policy forbids it, and the latter makes a cluster: the lab
# starts its own of both.
if ! has_postgres; then
  "${as_root[@]}" mkdir -p "${no_cluster%/*}"
  echo "create_main_cluster = false" | "${as_root[@]}" tee "$no_cluster" > /dev/null
fi
{
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"
} > "$log" 2>&1 || stop "apt-get could not install ${missing[*]}: $(tail -n 1 "$log")"
