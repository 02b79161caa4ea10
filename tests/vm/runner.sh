#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The lab runner: exit codes, what a dead guest looks like, and that it leaves nothing behind.
# lab: none
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

run() {
	"$OCHRE_LAB_PROGRAM" run --device none -- "$@"
}

# Our own QEMUs: descendants of this shell's session.
leftovers() {
	ps -e -o pid=,args= | awk '/[q]emu-system-x86_64/ && /ochre-lab-/' | grep -F "ochre-lab-$1-"
}

code_is() {
	local want=$1 out code
	shift
	out=$(run "$@" 2>&1)
	code=$?
	echo "$out"
	[ "$code" -eq "$want" ]
}

dead() {
	local out start=$SECONDS
	out=$(run sh -c "echo $1 >/proc/sysrq-trigger; sleep 60" 2>&1) && return 1
	echo "$out"
	[ $((SECONDS - start)) -lt "$(seconds 50)" ] && grep -q 'VM a is gone' <<<"$out" && grep -q 'a.console.log' <<<"$out"
}

interrupted() {
	local pid code
	"$OCHRE_LAB_PROGRAM" run --device none -- sleep 60 >"$scratch/out" 2>&1 &
	pid=$!
	for _ in $(seq "$(seconds 300)"); do
		grep -q 'up after' "$scratch/out" && break
		sleep 0.1
	done
	kill -"$1" $pid
	wait $pid
	code=$?
	sleep 0.5
	cat "$scratch/out"
	leftovers $pid && return 1
	[ "$1" = KILL ] || { [ $code -gt 128 ] && [ ! -e "/tmp/ochre-lab-$pid-0" ]; }
}

# Programs start fast, and what is built on the host is seen.
cached='mounts() { grep -E "^[^ ]+ $1 9p " /proc/mounts; }
mounts /usr | grep cache= && for folder in / /usr/local /usr/src; do mounts $folder | grep -v cache= || exit 1; done'

plan 7
check "a command's exit code is the runner's" code_is 3 sh -c 'exit 3'
check "a signal shows as 128 and its number" code_is 137 sh -c 'kill -KILL $$'
check "a guest caches its programs, and nothing that may change" code_is 0 sh -c "$cached"
check "a guest that panics is reported at once" dead c
check "a guest that powers off is reported at once" dead o
check "SIGTERM leaves nothing behind" interrupted TERM
check "SIGKILL leaves no QEMU behind" interrupted KILL
