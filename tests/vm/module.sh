#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The module goes and comes, idle and while a program holds a context.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

reload() {
	vm b "rmmod ochre && insmod '$OCHRE_MODULE'"
}

plan 9
check "the subnet is up" active b
for round in 1 2 3; do
	check "round $round: rmmod and insmod" reload
done
check "the port becomes active again" active b
check "traffic" traffic
check "a program holds a context" holder b
check "rmmod and insmod under it" reload
release b
check "traffic after that" eval "active b && traffic"
