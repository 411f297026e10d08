#!/usr/bin/env bash
# Finds oha, or builds it from its crate in setup/oha/ as $tools/oha. This takes many minutes, so only `make oha` runs this script.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

crate=setup/oha
built=$tools/oha
if [ ! -e "$built" ] && command -v oha > /dev/null; then exit 0; fi
! fresh "$built" "$crate/Cargo.lock" || exit 0
command -v cargo > /dev/null || fail "oha is not installed and Rust is not there to build it: install oha or Rust."
begin "oha into $tools"
target=$(cd "$tools" && pwd)/oha-target
(cd "$crate" && cargo build --release --locked --target-dir "$target")
mv "$target/release/oha" "$built.new"
finish "$built" "$crate/Cargo.lock"
rm -rf "$target"
