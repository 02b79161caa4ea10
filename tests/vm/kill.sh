#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Programs are killed in the middle of traffic; nothing of them stays behind.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

# Start traffic in the background of both VMs.
stream() {
	vm b "setsid ib_write_bw -F -d $OCHRE_DEVICE -D 60 >/tmp/server.log 2>&1 &"
	patient b "grep -qi ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6" 10 || return 1
	vm a "setsid ib_write_bw -F -d $OCHRE_DEVICE -D 60 b >/tmp/client.log 2>&1 &"
	# It is in traffic when the port's counter moves by more than datagrams for management.
	patient a "x=\$(cat $ports/counters/port_xmit_data); sleep 0.2; y=\$(cat $ports/counters/port_xmit_data)
		[ \$((y - x)) -gt 100000 ]" 20
}

kill_in() {
	vm "$1" "pkill -KILL -x ib_write_bw" && patient "$1" "! pgrep -x ib_write_bw" 10
}

# Nothing of a user's program is left in a VM.
clean() {
	patient "$1" "[ -z \"\$(rdma resource show qp -d 2>/dev/null | grep 'comm ib_write_bw')\" ] &&
		[ -z \"\$(rdma resource show mr -d 2>/dev/null | grep 'comm ib_write_bw')\" ]" 10
}

plan 10
check "the subnet is up" active b
check "traffic begins" stream
check "the client is killed" kill_in a
check "nothing of it is left" clean a
vm b "pkill -x ib_write_bw; true"
check "the server can be ended" patient b "pkill -KILL -x ib_write_bw; ! pgrep -x ib_write_bw" 20
check "traffic begins again" stream
check "the server is killed" kill_in b
check "nothing of it is left" clean b
check "the client can be ended" patient a "pkill -KILL -x ib_write_bw; ! pgrep -x ib_write_bw" 20
check "checked traffic after that" traffic
