#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A machine loses its power in traffic: its peer sees the link go down, and works again with its successor.
# lab: pair
# limit: 180
# rounds: 2 of 120 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

round() {
	start flow 18601 && lab cut b && patient a "grep DOWN $ports/state" 10 &&
		ended a flow RetriesExceeded && lab restart b
}

plan 3
check "the subnet is up" active a
check "the power of VM b is cut in traffic, and it boots" rounds a round
check "traffic" traffic
