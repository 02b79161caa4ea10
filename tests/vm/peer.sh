#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A machine loses its power: its peer sees the link go down, and works again with its successor.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

plan 5
check "the subnet is up" active a
check "the power of VM b is cut" lab cut b
check "VM a's port is down" patient a "grep DOWN $ports/state" 10
check "VM b boots, and both ports become active" eval "lab restart b && active b && active a"
check "traffic" traffic
