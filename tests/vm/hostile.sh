#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A program in both VMs writes nonsense into its own queues, records and doorbell page, and reaches for those of
# others: only its own QPs suffer. OCHRE_SEED names the first seed.
# lab: pair
# limit: 240
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

hostile=$(dirname "$OCHRE_LAB_PROGRAM")/ochre-hostile
seed=${OCHRE_SEED:-1}

# storm SECONDS: the two do their worst, with each other and alone.
storm() {
	local code=0 server
	lab exec b -- timeout "$(seconds 120)" "$hostile" storm $((seed + 1000000)) "$1" >"$scratch/storm.b" 2>&1 &
	server=$!
	lab exec a -- timeout "$(seconds 120)" "$hostile" storm "$seed" "$1" b >"$scratch/storm.a" 2>&1 || code=1
	wait $server || code=1
	[ $code -eq 0 ] || cat "$scratch"/storm.?
	return $code
}

# clean VM RESOURCES: no more is left than there was before.
clean() {
	patient "$1" "[ \"\$(rdma resource)\" = '$2' ]"
}

plan 14
check "the subnet is up" active b
before_a=$(vm a "rdma resource")
before_b=$(vm b "rdma resource")
check "bystanders begin" bystanders
rows lab exec a -- timeout "$(seconds 60)" "$hostile" limits
check "a storm of nonsense in both VMs, from seed $seed" storm 15
sed 's/^/# /' "$scratch"/storm.?
check "bystanders go on" bystanders_go_on
check "the bystanders' data was right throughout" bystanders_end
check "nothing is left in VM a" clean a "$before_a"
check "nothing is left in VM b" clean b "$before_b"
check "the storm works again" storm 1
check "checked traffic after that" traffic
