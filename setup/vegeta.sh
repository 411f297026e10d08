#!/usr/bin/env bash
# Finds vegeta, or builds it from its module in setup/vegeta/ as $tools/vegeta.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

module=setup/vegeta/go.mod
built=$tools/vegeta
if [ ! -e "$built" ] && command -v vegeta > /dev/null; then exit 0; fi
! fresh "$built" setup/vegeta/go.sum || exit 0
command -v go > /dev/null || fail "vegeta is not installed and Go is not there to build it: install vegeta or Go (go.dev/dl)."
begin "vegeta into $tools"
folder=$(cd "$tools" && pwd)
version=$(sed -n 's|^.*tsenart/vegeta/v12 v\([0-9.]*\).*$|\1|p' "$module")
# vegeta is built with the same flags as k6, so that both builds use one cached standard library.
flags=(-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false -gcflags=std= "-ldflags=-s -w -X main.Version=$version")
(cd setup/vegeta && CGO_ENABLED=0 go build -v "${flags[@]}" -o "$folder/vegeta.new" tool)
finish "$built" setup/vegeta/go.sum
