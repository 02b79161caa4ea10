#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A program that polls serves the device: no packet wakes the device's thread. One that sleeps is woken for each.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

messages=5000

# naps VM: how often the device's thread has gone to sleep.
naps() {
	local pid
	pid=$(process "$1")
	grep -lx ochre/hca0 "/proc/$pid"/task/*/comm | sed 's/comm$/status/' |
		xargs sed -n 's/^voluntary_ctxt_switches:\s*//p'
}

# latency [ARGUMENT...]: ib_send_lat from a to b; how often b's thread went to sleep for each message.
latency() {
	local before after
	vm b "setsid ib_send_lat -d $OCHRE_DEVICE -s 2 -n $messages $* >/tmp/server.log 2>&1 </dev/null &" &&
		listens b || return 1
	before=$(naps b)
	vm a "ib_send_lat -d $OCHRE_DEVICE -s 2 -n $messages $* b" && patient b "! pgrep -x ib_send_lat" || return 1
	after=$(naps b)
	echo "VM b's thread slept $((after - before)) times for $messages messages"
	slept=$((after - before))
}

# Who else needs the machine's processors can keep the guest from polling for a while: one good run of three will do.
polls() {
	for _ in 1 2 3; do
		latency || return 1
		[ $((slept * 2)) -gt $messages ] || return 0
	done
	return 1
}

sleeps() {
	latency -e && [ $((slept * 2)) -ge $messages ]
}

plan 3
check "the subnet is up" active b
check "who polls is not woken" polls
check "who sleeps is" sleeps
