#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The driver is unbound from its device and bound again: in traffic, and while a program holds a context.
# lab: pair
# limit: 240
# rounds: 2 of 60 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

driver=/sys/bus/pci/drivers/ochre

unbind() {
	vm b "echo $slot >$driver/unbind" && gone b && holds b "$nothing"
}

bind() {
	vm b "echo $slot >$driver/bind"
}

round() {
	start flow 18601 && unbind && ended b flow DeviceGone && ended a flow RetriesExceeded && bind
}

plan 7
check "the subnet is up" active b
slot=$(address b)
check "unbind and bind in traffic" rounds "a b" round
check "traffic" traffic
check "a program holds a context" holder b
check "unbind under it" unbind
release b
check "bind after that" eval "bind && active b"
check "traffic after that" traffic
