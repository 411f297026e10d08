#!/usr/bin/env bash
# setup/system.sh [wrk|nginx|perf|postgres ...]: find these programs (default: all four), or install them as system packages.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

has() { PATH="$PATH:/usr/local/sbin:/usr/sbin" command -v "$1" > /dev/null; }
has_postgres() { has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' > /dev/null; }
wanted=" ${*:-wrk nginx perf postgres} "
wants() { [[ $wanted == *" $1 "* ]]; }
missing=()
! wants wrk || has wrk || missing+=(wrk)
! wants nginx || has nginx || missing+=(nginx-light)
! wants perf || has perf || ! apt-cache show linux-perf > /dev/null 2>&1 || missing+=(linux-perf)
! wants postgres || has_postgres || missing+=(postgresql)
[ ${#missing[@]} -gt 0 ] || exit 0

# No campaign runs without wrk, so a missing wrk is an error. If nginx, PostgreSQL or perf is
# missing, only the campaigns that need this program fail.
stop() {
  has wrk && { echo "Warning: $*; what needs them will fail." >&2; exit 0; }
  fail "$*."
}
command -v apt-get > /dev/null || stop "${missing[*]} must be installed with your system's packages"
if [ "$(id -u)" = 0 ]; then as_root=()
elif sudo -n true 2> /dev/null; then as_root=(sudo -n)
else stop "${missing[*]} must be installed and this user may not: run apt-get install ${missing[*]} as root"
fi

install_missing() {
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"
}
begin "${missing[*]} from the system's packages"
# Keep the packages of nginx and PostgreSQL from starting a server or creating a cluster, because the lab starts its own.
no_cluster=/etc/postgresql-common/createcluster.d/web-bench-lab.conf
if wants postgres && ! has_postgres; then
  "${as_root[@]}" mkdir -p "${no_cluster%/*}"
  echo "create_main_cluster = false" | "${as_root[@]}" tee "$no_cluster" > /dev/null
fi
code=0
install_missing || code=2
"${as_root[@]}" rm -f "$no_cluster"
[ $code = 0 ] || ! has wrk || {
  echo "Warning: ${missing[*]} could not be installed: $(reason) (see $log); what needs them will fail." >&4
  trap - EXIT
  code=0
}
exit $code
