#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# IP over InfiniBand, and programs that connect by the RDMA connection manager over it.
# lab: pair
# limit: 180
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

# address of the VM with a number
ip_of() {
	echo "192.168.65.$1"
}

up() {
	vm a "modprobe ib_ipoib && ip addr replace $(ip_of 1)/24 dev ib0 && ip link set ib0 up" &&
		vm b "modprobe ib_ipoib && ip addr replace $(ip_of 2)/24 dev ib0 && ip link set ib0 up"
}

# rdma-ping: SEND, READ and WRITE of data that the other side checks.
rping() {
	lab exec b -- timeout "$(seconds 60)" rping -s -V -a "$(ip_of 2)" -C 20 >"$scratch/server" 2>&1 &
	if ! patient b "rdma resource show cm_id | grep LISTEN" 20; then
		cat "$scratch/server"
		return 1
	fi
	lab exec a -- timeout "$(seconds 40)" rping -c -V -a "$(ip_of 2)" -C 20
}

plan 6
check "the subnet is up" active b
check "both interfaces come up" up
check "an echo comes back" patient a "ping -c 1 -W $(seconds 1) $(ip_of 2)" 20
check "large packets come back whole" vm a "ping -c 20 -i 0.01 -s 8000 -W $(seconds 5) $(ip_of 2)"
check "connections by the manager carry checked data" rping
check "the modules go again" eval "vm a 'rmmod ib_ipoib' && vm b 'rmmod ib_ipoib'"
