#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The driver is unbound from its device and bound again, idle and while a program holds a context.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

driver=/sys/bus/pci/drivers/ochre

unbind() {
	vm b "echo $slot >$driver/unbind" && gone b
}

bind() {
	vm b "echo $slot >$driver/bind" && active b
}

plan 8
check "the subnet is up" active b
slot=$(address b)
check "unbind" unbind
check "bind, and the port becomes active" bind
check "traffic" traffic
check "a program holds a context" holder b
check "unbind under it" unbind
release b
check "bind after that" bind
check "traffic after that" traffic
