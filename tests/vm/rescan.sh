#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The device is removed from the PCI bus and found again, idle and while a program holds a context.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

remove() {
	vm b "echo 1 >/sys/bus/pci/devices/$slot/remove" && gone b
}

rescan() {
	vm b "echo 1 >/sys/bus/pci/rescan" && active b
}

plan 8
check "the subnet is up" active b
slot=$(address b)
check "remove" remove
check "rescan, and the port becomes active" rescan
check "traffic" traffic
check "a program holds a context" holder b
check "remove under it" remove
release b
check "rescan after that" rescan
check "traffic after that" traffic
