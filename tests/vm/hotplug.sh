#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The device is taken out of its slot and put back: in traffic, and while a program holds a context.
# lab: pair
# limit: 240
# rounds: 2 of 90 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

unplug() {
	lab unplug b && gone b
}

round() {
	start flow 18601 && unplug && ended b flow DeviceGone && ended a flow RetriesExceeded && lab plug b
}

plan 7
check "the subnet is up" active b
check "unplug and plug in traffic" rounds "a b" round
check "traffic" traffic
check "a program holds a context" holder b
check "unplug under it" unplug
release b
check "plug after that" eval "lab plug b && active b"
check "traffic after that" traffic
