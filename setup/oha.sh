#!/usr/bin/env bash
# Finds oha, or builds it from its crate in setup/oha/ as .tools/oha: many minutes, so that only `make oha` does.
# shellcheck source=setup/part.sh
. "$(dirname "$0")/part.sh"

crate=setup/oha
if [ ! -e .tools/oha ] && command -v oha > /dev/null; then exit 0; fi
[ ! .tools/oha -nt "$crate/Cargo.lock" ] || exit 0
command -v cargo > /dev/null || fail "oha is not installed and Rust is not there to build it: install oha or Rust."
begin "oha into .tools"
target=$PWD/.tools/oha-target
(cd "$crate" && cargo build --release --locked --target-dir "$target")
mv "$target/release/oha" .tools/oha.new
mv .tools/oha.new .tools/oha
rm -rf "$target"
