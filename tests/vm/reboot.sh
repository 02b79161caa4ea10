#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest reboots; its port and its peer's come back.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

plan 4
check "the subnet is up" active b
check "the guest reboots and has its device" lab reboot b
check "both ports become active" eval "active b && active a"
check "traffic" traffic
