#!/usr/bin/env bash
# setup/k6.sh: find k6, or build the series $K6_SERIES from its module in setup/k6/ as $tools/k6.
# setup/k6.sh SERIES...: build each of these series as $tools/k6-SERIES, even if another k6 is installed.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

fits() { "$1" version 2> /dev/null | grep -qE '^k6 v(1\.([89]|[1-9][0-9])|2)\.'; }
wanted=("$@")
if [ $# = 0 ]; then
  series=${K6_SERIES:-v1}
  if [ ! -e "$tools/k6" ] && fits k6; then exit 0; fi
  wanted=("$series")
  [ -d "setup/k6/$series" ] || fail "There is no series $series of k6 in setup/k6: name one of $(cd setup/k6 && echo *)."
fi

missing=()
for each in "${wanted[@]}"; do fresh "$tools/k6-$each" "setup/k6/$each/go.sum" || missing+=("$each"); done
if [ ${#missing[@]} -gt 0 ]; then
  command -v go > /dev/null ||
    fail "k6 1.8 to 2.x is not installed and Go is not there to build it: install k6 or Go (go.dev/dl)."
  begin "k6 ${missing[*]} into $tools"
  folder=$(cd "$tools" && pwd)
fi
# k6 is built like its official releases, but without debugging information, which would take a
# seventh of the build's time. The flags for the standard library are those of the Go servers, so
# that the builds of k6 and of the servers use the same cached standard library.
flags=(-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false -gcflags=std= '-ldflags=-s -w')
for each in "${missing[@]}"; do
  (cd "setup/k6/$each" && CGO_ENABLED=0 go build -v "${flags[@]}" -o "$folder/k6-$each.new" tool)
  finish "$tools/k6-$each" "setup/k6/$each/go.sum"
done
[ $# != 0 ] || ln -sf "k6-$series" "$tools/k6"
