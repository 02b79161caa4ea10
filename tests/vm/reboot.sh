#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest reboots in traffic, or panics; its port and its peer's come back.
# lab: pair
# limit: 180
# rounds: 2 of 120 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

reboot() {
	start flow 18601 && lab reboot b && ended a flow RetriesExceeded
}

panic() {
	start flow 18601 || return 1
	# Nobody answers any more.
	vm b "echo c >/proc/sysrq-trigger" && return 1
	lab restart b && ended a flow RetriesExceeded
}

plan 5
check "the subnet is up" active b
check "the guest reboots in traffic" rounds "a b" reboot
check "traffic" traffic
check "the guest panics in traffic" rounds a panic
check "traffic after that" traffic
