#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A function level reset leaves a device that works: without a driver, and under one in traffic.
# lab: pair
# limit: 240
# rounds: 2 of 60 s
# shellcheck source=tests/vm/lib-life.sh
. "$(dirname "$0")/lib-life.sh"

# Programs hear of it from the driver, which looks after its device; it has to be bound anew.
round() {
	start flow 18601 && vm b "echo 1 >$device/reset" && holds b "$nothing" &&
		ended b flow DeviceGone && ended a flow RetriesExceeded &&
		vm b "echo $slot >$driver/unbind && echo $slot >$driver/bind"
}

# The driver has no time to notice.
at_once() {
	start flow 18601 && vm b "echo 1 >$device/reset && echo $slot >$driver/unbind && echo $slot >$driver/bind" &&
		ended b flow DeviceGone && ended a flow RetriesExceeded && intact
}

plan 7
check "the subnet is up" active b
slot=$(address b)
device=/sys/bus/pci/devices/$slot
driver=/sys/bus/pci/drivers/ochre
check "the device offers a function level reset" vm b "grep -w flr $device/reset_method"
check "reset without a driver" vm b "echo $slot >$driver/unbind && echo 1 >$device/reset && echo $slot >$driver/bind"
check "traffic" eval "active b && traffic"
check "reset under the driver in traffic" rounds "a b" round
check "reset and bound anew at once" at_once
check "traffic after that" traffic
