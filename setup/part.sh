# shellcheck shell=bash
# Functions shared by the parts of the set-up. A part that has nothing to do prints nothing. Any other part prints one line when it
# begins, and one line with its time or its error when it ends. All other output goes to its log.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
set -euo pipefail
# Let Go's compiler collect garbage less often. It needs more memory then, but a fifth less CPU time. The binaries stay the same.
export GOGC=${GOGC:-400}
# The folder of built tools. If the lab is installed as a package, `bench setup` sets BENCH_TOOLS to a folder in the user's cache.
tools=${BENCH_TOOLS:-.tools}

# fail SENTENCE: end the part with an error before it begins.
fail() { echo "Error: $*" >&2; exit 2; }

# begin WHAT: print the part's first line. From here on, all output goes to the part's log.
begin() {
  what=$1 log=$tools/setup-$(basename "$0" .sh).log
  mkdir -p "$tools"
  exec 3>&1 4>&2 > "$log" 2>&1
  echo "$what ..." >&3
  SECONDS=0
  trap 'ended $?' EXIT
  trap 'trap - EXIT; exit 130' INT TERM
}

# fresh BUILT LOCK: succeed if the tool BUILT was built from the versions in LOCK. `finish` keeps a copy
# of LOCK beside BUILT, so succeed if LOCK equals this copy. The files' times are not compared, because
# the files of the lab's package get new times at each installation. Only if there is no copy, succeed
# if BUILT is newer than LOCK.
fresh() {
  [ -x "$1" ] || return 1
  if [ -e "$1.lock" ]; then cmp -s "$2" "$1.lock"; else [ "$1" -nt "$2" ]; fi
}

# finish BUILT LOCK: replace BUILT by BUILT.new, and keep a copy of LOCK beside BUILT.
finish() {
  cp "$2" "$1.lock"
  mv "$1.new" "$1"
}

# reason: print the first line of the log that begins with "error". If no line does, print the log's last line.
reason() {
  { grep -iE -m 1 '^ *error' "$log" || grep -v '^ *$' "$log" | tail -n 1; } | sed -E 's/^ *(error: *)?//I; s/\.$//'
}

ended() {
  [ "$1" != 0 ] || { echo "$what: done in $SECONDS s" >&3; return; }
  local said
  said=$(reason) || true
  echo "Error: $what failed: ${said:-no reason given} (see $log)." >&4
  exit 2
}
