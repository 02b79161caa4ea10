#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# 1,000 QPs and 10,000 regions in one VM, from several programs at once, which end by themselves or are killed.
# lab: pair
# limit: 300
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

objects=$OCHRE_TOP/tests/bench/objects.py

# programs NUMBER QPS MRS [SCRIPT]: so many programs in VM a, each with so many objects, and what the VM does
# meanwhile; waits for their ends. It is asked nothing while they work: the answers cost more than the objects.
programs() {
	vm a "rm -f /tmp/objects.*
		for i in \$(seq $1); do
			{ timeout $(seconds 100) python3 '$objects' $OCHRE_DEVICE $2 $3; echo \"exit code \$?\"; } >/tmp/objects.\$i 2>&1 &
		done
		${4:-}
		wait
		cat /tmp/objects.*"
}

# made NUMBER QPS MRS: programs, all of which make and destroy what they should.
made() {
	programs "$@" >"$scratch/objects"
	cat "$scratch/objects"
	[ "$(grep -c '^exit code 0$' "$scratch/objects")" -eq "$1" ] &&
		[ "$(grep -c "\"qps\": $2,.*\"mrs\": $3," "$scratch/objects")" -eq "$1" ]
}

# regions: how many there are.
regions="rdma resource | sed -n 's/.* mr \\([0-9]*\\) .*/\\1/p'"

# killed NUMBER QPS MRS: programs that are killed once they make regions.
killed() {
	programs "$@" "until [ \$($regions) -gt 1000 ] || ! pgrep -x python3 >/dev/null; do sleep 1; done
		pkill -KILL -x python3" >"$scratch/objects"
	cat "$scratch/objects"
	[ "$(grep -c '^exit code 137$' "$scratch/objects")" -eq "$1" ]
}

# clean: nothing of a program is left.
clean() {
	patient a "[ \"\$(rdma resource)\" = '$before' ]" 60
}

plan 7
check "the subnet is up" active b
before=$(vm a "rdma resource")
check "four programs make and destroy 1,000 QPs and 10,000 regions" made 4 250 2500
sed -n 's/^{/# {/p' "$scratch/objects"
check "nothing of them is left" clean
check "four programs are killed while they make regions" killed 4 50 20000
check "nothing of them is left" clean
check "one program makes and destroys 1,000 QPs and 10,000 regions" made 1 1000 10000
sed -n 's/^{/# {/p' "$scratch/objects"
check "checked traffic after that" traffic
