#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The device is removed from the PCI bus and found again: in traffic, and while a program holds a context.
# lab: pair
# limit: 240
# rounds: 2 of 60 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

remove() {
	vm b "echo 1 >/sys/bus/pci/devices/$slot/remove" && gone b && holds b "$nothing"
}

rescan() {
	vm b "echo 1 >/sys/bus/pci/rescan"
}

round() {
	start flow 18601 && remove && ended b flow DeviceGone && ended a flow RetriesExceeded && rescan
}

plan 7
check "the subnet is up" active b
slot=$(address b)
check "remove and rescan in traffic" rounds "a b" round
check "traffic" traffic
check "a program holds a context" holder b
check "remove under it" remove
release b
check "rescan after that" eval "rescan && active b"
check "traffic after that" traffic
