#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A function level reset leaves a device that works, without a driver and under one.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

plan 6
check "the subnet is up" active b
slot=$(address b)
device=/sys/bus/pci/devices/$slot
driver=/sys/bus/pci/drivers/ochre
check "the device offers a function level reset" vm b "grep -w flr $device/reset_method"
check "reset without a driver" vm b "echo $slot >$driver/unbind && echo 1 >$device/reset && echo $slot >$driver/bind"
check "traffic" eval "active b && traffic"
check "reset under the driver, then bind anew" vm b \
	"echo flr >$device/reset_method && echo 1 >$device/reset && echo $slot >$driver/unbind && echo $slot >$driver/bind"
check "traffic after that" eval "active b && traffic"
