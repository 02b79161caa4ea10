#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Wrong input of every kind through the verbs: each gives the specified error on the specified side, and
# a pair of programs that share the devices does not notice.
# lab: pair
# limit: 240
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

# table [WORD]: the cases, each a line of the report.
table() {
	lab exec b -- python3 "$here/wrong.py" serve "$OCHRE_DEVICE" >"$scratch/server" 2>&1 &
	rows lab exec a -- timeout "$(seconds 150)" python3 "$here/wrong.py" run "$OCHRE_DEVICE" b "$@"
	wait $!
}

# partitions TEXT: the subnet manager gets other partitions.
partitions() {
	vm a "printf '%s\n' '$1' >/etc/opensm/partitions.conf && pkill -HUP -x opensm"
}

# joined VM, left VM: wait until the port of a VM is in the second partition, or no longer.
joined() {
	patient "$1" "grep -q 0x8001 $ports/pkeys/*"
}

left() {
	patient "$1" "! grep -q 0x8001 $ports/pkeys/*"
}

default='Default=0x7fff, ipoib : ALL=full;'
plan $((7 + $(python3 "$here/wrong.py" count) + $(python3 "$here/wrong.py" count keys)))
check "the subnet is up" active b
check "bystanders begin" bystanders
table
check "bystanders go on" bystanders_go_on
check "both ports join a second partition" eval \
	"partitions '$default Second=0x0001 : ALL=full;' && joined a && joined b"
table keys
check "they leave it" eval "partitions '$default' && left a && left b"
check "the bystanders' data was right throughout" bystanders_end
check "checked traffic after that" traffic
