#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A machine stands still while its peer sends: credits hold and nothing is lost, until the peer's retries end.
# lab: pair
# limit: 240
# rounds: 2 of 90 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

# PortXmitWait of VM a.
waits() {
	vm a "cat $ports/counters/port_xmit_wait"
}

discards() {
	vm a "cat $ports/counters/port_xmit_discards"
}

# still SECONDS: VM b stands still for so long, the patient one has seven retries at 8.6 s and more.
still() {
	local waited lost
	start patient 18601 --timeout 21 --retries 7 && start hasty 18602 --timeout 15 || return 1
	waited=$(waits)
	lost=$(discards)
	lab qmp b stop && ended a hasty RetriesExceeded || return 1
	sleep "$1"
	vm a "grep ACTIVE $ports/state" || return 1
	if [ "$(discards)" -ne "$lost" ] || [ "$(waits)" -le "$waited" ]; then
		echo "PortXmitDiscards were $lost, are $(discards); PortXmitWait was $waited, is $(waits)"
		return 1
	fi
	lab qmp b cont && ended b hasty RetriesExceeded && goes_on a patient && goes_on b patient && halt patient
}

round() {
	still 2
}

plan 4
check "the subnet is up" active b
check "VM b stands still for seconds" rounds "a b" round
check "VM b stands still for longer" eval "still ${OCHRE_PAUSE:-15} && intact"
check "traffic" traffic
