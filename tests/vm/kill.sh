#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Programs are killed in the middle of traffic, at either end; nothing of them stays behind.
# lab: pair
# limit: 120
# rounds: 2 of 60 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

# round N: the ends take turns.
round() {
	local killed=a left=b
	if [ $(($1 % 2)) -eq 0 ]; then
		killed=b left=a
	fi
	start flow 18601 && vm $killed "kill -KILL \$(cat /tmp/flow.pid)" && ended $left flow RetriesExceeded
}

plan 4
check "the subnet is up" active b
check "programs are killed in traffic" rounds "a b" round
check "programs end in good order" eval "start flow 18601 && halt flow && intact"
check "traffic" traffic
