#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The cable is pulled and put back in traffic: who has the time waits and loses nothing, who has not gets its error.
# lab: pair
# limit: 180
# rounds: 2 of 90 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

# Local ACK time-out 19: 2.1 s, and seven retries.
round() {
	start patient 18601 --timeout 19 --retries 7 && start hasty 18602 --timeout 15 || return 1
	hca b qom-set plugged0 false && patient a "grep DOWN $ports/state" 10 && patient b "grep DOWN $ports/state" 10 &&
		ended a hasty RetriesExceeded && ended b hasty RetriesExceeded || return 1
	hca b qom-set plugged0 true && active a && active b && goes_on a patient && goes_on b patient && halt patient
}

plan 3
check "the subnet is up" active b
check "the cable is pulled and put back in traffic" rounds "a b" round
check "traffic" traffic
