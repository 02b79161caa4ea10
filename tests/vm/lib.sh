# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What the tests in virtual machines share. The lab runner sets the variables:
#   OCHRE_LAB_PROGRAM  the lab runner, to talk to the lab that runs (found by OCHRE_LAB)
#   OCHRE_DEVICE       name of the RDMA device in the guests
#   OCHRE_MODULE       the kernel module
set -u

lab() {
	"$OCHRE_LAB_PROGRAM" "$@"
}

# vm NAME SCRIPT: run a shell script in a VM.
vm() {
	lab exec "$1" -- sh -c "$2"
}

number=0

# plan N: say how many checks will come.
plan() {
	echo "KTAP version 1"
	echo "1..$1"
}

# check WHAT COMMAND...: one result; the test ends at the first one that is not well.
check() {
	local what=$1 output
	shift
	number=$((number + 1))
	if output=$("$@" 2>&1); then
		echo "ok $number $what"
	else
		# shellcheck disable=SC2001  # every line gets the mark
		sed 's/^/# /' <<<"$output"
		echo "not ok $number $what"
		exit 1
	fi
}

# skip WHY: this cannot be tried here.
skip() {
	echo "$*"
	exit 4
}

# patient VM SCRIPT [SECONDS]: run a question in a VM until it is answered by success.
patient() {
	local limit=${3:-30}
	vm "$1" "end=\$((\$(cut -d. -f1 /proc/uptime) + $limit))
		until { $2; } >/dev/null 2>&1; do
			if [ \$(cut -d. -f1 /proc/uptime) -ge \$end ]; then
				echo 'not within $limit s:' >&2
				$2
				exit 1
			fi
			sleep 0.1
		done"
}

ports=/sys/class/infiniband/$OCHRE_DEVICE/ports/1

# active VM: wait until the port of a VM is active.
active() {
	patient "$1" "grep ACTIVE $ports/state" 40
}

# address VM: where the HCA of a VM sits in its PCI bus.
address() {
	vm "$1" "basename \$(readlink -f /sys/class/infiniband/$OCHRE_DEVICE/device)"
}

# traffic: both VMs exchange checked data.
traffic() {
	pingpong rc && pingpong ud
}

# pingpong TRANSPORT [ARGUMENT...]: b serves, a asks, the data is checked.
pingpong() {
	local transport=$1 out code=0 server
	shift
	lab exec b -- "ibv_${transport}_pingpong" -d "$OCHRE_DEVICE" -c "$@" >"$scratch/server" 2>&1 &
	server=$!
	patient b "grep -qi ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6" 10 || code=1
	out=$(timeout 40 "$OCHRE_LAB_PROGRAM" exec a -- "ibv_${transport}_pingpong" -d "$OCHRE_DEVICE" -c "$@" b 2>&1) ||
		code=1
	if [ $code -eq 0 ]; then
		wait $server || code=1
	else
		kill $server 2>/dev/null
	fi
	if grep -q 'invalid data' "$scratch/server" - <<<"$out"; then
		code=1
	fi
	if [ $code -ne 0 ]; then
		echo "ibv_${transport}_pingpong $*: client:"
		echo "$out"
		echo "server:"
		cat "$scratch/server"
	fi
	return $code
}

# holder VM: a program that keeps a context of the device open, in the background of the VM.
holder() {
	vm "$1" "rm -f /tmp/holder.log; setsid ibv_asyncwatch -d $OCHRE_DEVICE >/tmp/holder.log 2>&1 &
		sleep 0.1; cat /tmp/holder.log" &&
		patient "$1" "pgrep -x ibv_asyncwatch && grep -q async /tmp/holder.log" 10
}

# release VM: end it.
release() {
	vm "$1" "pkill -KILL -x ibv_asyncwatch; true" && patient "$1" "! pgrep -x ibv_asyncwatch" 10
}

# gone VM: wait until the device is gone.
gone() {
	patient "$1" "[ ! -e /sys/class/infiniband/$OCHRE_DEVICE ]"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
