#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# 1,000 QPs and 10,000 regions in one VM, from several programs at once, which end by themselves or are killed.
# lab: pair
# limit: 300
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

objects=$OCHRE_TOP/tests/bench/objects.py

# begin PROGRAMS QPS MRS: so many programs in VM a, each with so many objects.
begin() {
	vm a "rm -f /tmp/objects.*; for i in \$(seq $1); do
		{ python3 '$objects' $OCHRE_DEVICE $2 $3 >/tmp/objects.\$i 2>&1; echo \"exit code \$?\" >>/tmp/objects.\$i; } &
	done"
}

# ended PROGRAMS QPS MRS: wait until all have made and destroyed what they should.
ended() {
	patient a "[ \$(cat /tmp/objects.* | grep -c '^exit code') -eq $1 ]" 150 &&
		vm a "cat /tmp/objects.*; [ \$(cat /tmp/objects.* | grep -c '^exit code 0') -eq $1 ] &&
			[ \$(cat /tmp/objects.* | grep -c '\"qps\": $2,.*\"mrs\": $3,') -eq $1 ]"
}

# regions: how many there are.
regions="rdma resource | sed -n 's/.* mr \\([0-9]*\\) .*/\\1/p'"

# killed: they have begun to make regions, and are killed in the middle of it.
killed() {
	patient a "[ \$($regions) -gt 1000 ]" 100 && vm a "pkill -KILL -f '[o]bjects.py'" &&
		patient a "! pgrep -f '[o]bjects.py'"
}

# clean: nothing of a program is left.
clean() {
	patient a "[ \"\$(rdma resource)\" = '$before' ]" 60
}

plan 9
check "the subnet is up" active b
before=$(vm a "rdma resource")
check "four programs begin" begin 4 250 2500
check "they make and destroy 1,000 QPs and 10,000 regions" ended 4 250 2500
vm a "sed -n 's/^{/# {/p' /tmp/objects.*"
check "nothing of them is left" clean
check "four programs begin again" begin 4 250 20000
check "they are killed in the middle" killed
check "nothing of them is left" clean
check "one program makes and destroys 1,000 QPs and 10,000 regions" eval "begin 1 1000 10000 && ended 1 1000 10000"
vm a "sed -n 's/^{/# {/p' /tmp/objects.*"
check "checked traffic after that" traffic
