#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The module goes and comes: in traffic, and while a program holds a context.
# lab: pair
# limit: 240
# rounds: 3 of 60 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

reload() {
	vm b "rmmod ochre" && holds b "$nothing" && vm b "insmod '$OCHRE_MODULE'"
}

round() {
	start flow 18601 && reload && ended b flow DeviceGone && ended a flow RetriesExceeded
}

plan 6
check "the subnet is up" active b
check "rmmod and insmod in traffic" rounds "a b" round
check "traffic" traffic
check "a program holds a context" holder b
check "rmmod and insmod under it" reload
release b
check "traffic after that" eval "active b && traffic"
