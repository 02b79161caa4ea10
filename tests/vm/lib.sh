# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What the tests in virtual machines share. The lab runner sets the variables:
#   OCHRE_LAB_PROGRAM  the lab runner, to talk to the lab that runs (found by OCHRE_LAB)
#   OCHRE_DEVICE       name of the RDMA device in the guests
#   OCHRE_MODULE       the kernel module
#   OCHRE_PATIENCE     how many times longer than written things may take
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

lab() {
	"$OCHRE_LAB_PROGRAM" "$@"
}

# vm NAME SCRIPT: run a shell script in a VM.
vm() {
	lab exec "$1" -- sh -c "$2"
}

# seconds N: a time limit as long as it has to be here, for whoever does not wait by `patient`.
seconds() {
	echo $(($1 * ${OCHRE_PATIENCE:-1}))
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

# patient VM SCRIPT [SECONDS]: run a question in a VM until it is answered by success. Under translation a
# question costs the VM's processor tens of milliseconds, so what lasts is asked less often.
patient() {
	local limit
	limit=$(seconds "${3:-30}")
	vm "$1" "now() { read -r up _ </proc/uptime; up=\${up%.*}; }
		now; start=\$up pause=0.1
		until { $2; } >/dev/null 2>&1; do
			now
			if [ \$((up - start)) -ge $limit ]; then
				echo 'not within $limit s:' >&2
				$2
				exit 1
			fi
			[ \$((up - start)) -lt 2 ] || pause=0.5
			sleep \$pause
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

# listens VM: wait until a program in the VM listens on port 18515, as pingpongs and perftest do.
listens() {
	patient "$1" "grep -qi ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6" 10
}

# process VM: the process id of the VM's QEMU.
process() {
	lab list | python3 -c 'import json, sys
print([vm["pid"] for vm in json.load(sys.stdin) if vm["name"] == sys.argv[1]][0])' "$1"
}

# pingpong TRANSPORT [ARGUMENT...]: b serves, a asks, the data is checked.
pingpong() {
	local transport=$1 out code=0 server
	shift
	lab exec b -- "ibv_${transport}_pingpong" -d "$OCHRE_DEVICE" -c "$@" >"$scratch/server" 2>&1 &
	server=$!
	listens b || code=1
	out=$(timeout "$(seconds 40)" "$OCHRE_LAB_PROGRAM" exec a -- "ibv_${transport}_pingpong" -d "$OCHRE_DEVICE" -c "$@" b 2>&1) ||
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

# rows COMMAND...: a program whose lines "ok WHAT" and "not ok WHAT: WHY" are results; other lines are comments.
rows() {
	local line code=0
	while IFS= read -r line; do
		case $line in
		"ok "*) number=$((number + 1)) && echo "ok $number ${line#ok }" ;;
		"not ok "*) number=$((number + 1)) && code=1 && echo "not ok $number ${line#not ok }" ;;
		*) echo "# $line" ;;
		esac
	done < <("$@" 2>&1)
	[ $code -eq 0 ] || exit 1
}

# bystander VM [HOST]: one of a pair of programs that exchange checked data, in the background.
bystander() {
	local vm=$1
	shift
	{
		lab exec "$vm" -- python3 "$here/bystander.py" "$OCHRE_DEVICE" /tmp/bystander "$@" &
		echo $! >"$scratch/bystander.$vm.pid"
		wait $!
		echo $? >"$scratch/bystander.$vm.code"
	} >"$scratch/bystander.$vm" 2>&1 &
}

# bystanders: the pair begins. It is in no way part of what a test does, and must not notice it.
bystanders() {
	vm a "rm -f /tmp/bystander" && vm b "rm -f /tmp/bystander"
	bystander b
	bystander a b
	if ! { patient a "[ -s /tmp/bystander ]" 60 && patient b "[ -s /tmp/bystander ]"; }; then
		cat "$scratch"/bystander.?
		return 1
	fi
}

# bystanders_go_on: their data is still exchanged.
bystanders_go_on() {
	local before
	before=$(vm b "cat /tmp/bystander")
	if ! patient b "[ \$(cat /tmp/bystander) -gt $before ]"; then
		cat "$scratch"/bystander.?
		return 1
	fi
}

# bystanders_end: all that they have exchanged was right.
bystanders_end() {
	local vm
	vm a "pkill -TERM -f '[b]ystander.py'" || { cat "$scratch"/bystander.?; return 1; }
	for _ in $(seq 300); do
		[ -s "$scratch/bystander.a.code" ] && [ -s "$scratch/bystander.b.code" ] && break
		sleep 0.1
	done
	for vm in a b; do
		echo "VM $vm:"
		cat "$scratch/bystander.$vm"
		[ "$(cat "$scratch/bystander.$vm.code")" = 0 ] || return 1
	done
}

# A test that fails in the middle leaves no program behind.
finish() {
	cat "$scratch"/bystander.?.pid 2>/dev/null | xargs -r kill 2>/dev/null
	rm -rf "$scratch"
}

scratch=$(mktemp -d)
trap finish EXIT
