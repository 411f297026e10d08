#!/usr/bin/env bash
# Sets up everything that the campaign quick needs. The parts of the set-up are independent, so they run in parallel. If a part
# fails, the other parts still finish, and the exit code is 2.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
set -m # gives each part a process group, so that no part outlives an interrupt

parts=()
# shellcheck disable=SC2317 # called by the trap
stop() {
  for part in "${parts[@]}"; do kill -- "-$part" 2> /dev/null; done
  exit 130
}
trap stop INT TERM

for part in python k6 system servers; do
  "setup/$part.sh" < /dev/null &
  parts+=($!)
done
status=0
for part in "${parts[@]}"; do wait "$part" || status=2; done
exit $status
