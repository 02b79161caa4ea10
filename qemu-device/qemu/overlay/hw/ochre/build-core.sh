#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Build the device's core with cargo.
#
#   build-core.sh CHECKOUT_FILE OUTPUT DEPFILE
set -eu
checkout=$(cat "$1")
output=$2
depfile=$3
target=${CARGO_TARGET_DIR:-$checkout/target}
profile=${OCHRE_CORE_PROFILE:-release}
built=$target/$profile

cargo build --quiet --manifest-path "$checkout/Cargo.toml" --profile "$profile" -p ochre-qemu --lib
cp "$built/libochre_qemu.a" "$output.new"
mv "$output.new" "$output"
{
	printf '%s:' "$output"
	sed 's/^[^:]*://' "$built/libochre_qemu.d" | tr -d '\n'
	printf ' %s %s\n' "$checkout/Cargo.toml" "$checkout/Cargo.lock"
} >"$depfile"
