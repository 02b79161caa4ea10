#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Run the tests and count them.
#
#   scripts/test.sh [unit|vm]
#
# `unit`: only what needs no VM; `vm`: only what needs one, on the kernel that KERNEL names. The last line is
# "N passed, N failed" (and ", N skipped"), over everything.
set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=${OCHRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ochre}
enter=$top/scripts/enter.sh
what=${1:-all}
logs=$top/build/test
mkdir -p "$logs"
passed=0
failed=0
skipped=0

# count LOG CODE: add up the closing lines in a log: cargo's, and plain ones.
# A run that failed without saying how many counts as one failure.
count() {
	local sums p f s
	sums=$(sed -nE \
		-e 's/^test result: [a-zA-Z]+\. ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' \
		-e 's/^([a-z]+: )?([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\2 \3 \5/p' "$1" |
		awk '{ p += $1; f += $2; s += $3 } END { printf "%d %d %d", p, f, s }')
	read -r p f s <<<"$sums"
	if [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; then
		f=1
	fi
	passed=$((passed + p))
	failed=$((failed + f))
	skipped=$((skipped + s))
}

# run NAME TITLE COMMAND...: run a part, show it, count it.
run() {
	local name=$1 title=$2 code
	shift 2
	printf '\n== %s\n' "$title"
	"$@" </dev/null 2>&1 | tee "$logs/$name.log"
	code=${PIPESTATUS[0]}
	count "$logs/$name.log" "$code"
	[ "$code" -eq 0 ] || printf '== %s failed (exit code %s) [log: %s]\n' "$title" "$code" "$logs/$name.log"
}

cd "$top" || exit 1
if [ "$what" != vm ]; then
	run cargo "unit, property and simulation tests; the device in QEMU without a guest" \
		"$enter" cargo test --profile checked --workspace --locked --no-fail-fast
	run count "instructions of the engine for a message" \
		"$enter" cargo run --release --quiet --locked -p ochre-lab -- count
fi
if [ "$what" != unit ]; then
	run vm "tests in virtual machines${KERNEL:+, kernel: $KERNEL}" "$enter" "$cache/target/release/ochre-lab" test
fi

printf '\n%d passed, %d failed' "$passed" "$failed"
[ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
printf '\n'
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
