#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The device is taken out of its slot and put back, idle and while a program holds a context.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

plan 8
check "the subnet is up" active b
check "unplug" eval "lab unplug b && gone b"
check "plug, and the port becomes active" eval "lab plug b && active b"
check "traffic" traffic
check "a program holds a context" holder b
check "unplug under it" eval "lab unplug b && gone b"
release b
check "plug after that" eval "lab plug b && active b"
check "traffic after that" traffic
