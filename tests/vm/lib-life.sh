# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What the tests of the life cycle share: traffic in both directions, and what must be as before after each round.
# The lab runner sets OCHRE_ROUNDS, the number of rounds.
# shellcheck source=tests/vm/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Progress is shown while a check runs.
exec 3>&1

program=$(dirname "$OCHRE_LAB_PROGRAM")/ochre-traffic

# start NAME PORT [ARGUMENT...]: begin traffic between both VMs, and see it flow. PORT is for its handshake.
start() {
	local name=$1 port=$2
	shift 2
	launch b "$name" --tcp "$port" "$@" && launch a "$name" --tcp "$port" --connect b "$@" &&
		flows a "$name" && flows b "$name"
}

# launch VM NAME ARGUMENT...: one end of it.
launch() {
	local vm=$1 name=$2
	shift 2
	vm "$vm" "setsid '$program' $OCHRE_DEVICE $* >/tmp/$name.log 2>&1 </dev/null & echo \$! >/tmp/$name.pid"
}

# flows VM NAME: wait until messages have gone both ways.
flows() {
	patient "$1" "grep -q '^groups [1-9][0-9]* [1-9]' /tmp/$2.log" 60 || { story "$1" "$2"; return 1; }
}

# story VM NAME: what a program said.
story() {
	echo "VM $1, traffic '$2':"
	vm "$1" "tail -n 4 /tmp/$2.log"
}

# ended VM NAME HOW: wait until a program ends, and see that it ended so (an extended regular expression).
ended() {
	patient "$1" "! kill -0 \$(cat /tmp/$2.pid)" 60 && vm "$1" "grep -qE '^ended: ($3)\$' /tmp/$2.log" && return 0
	story "$1" "$2"
	echo "expected: ended: $3"
	return 1
}

# goes_on VM NAME: more messages than now go both ways.
goes_on() {
	if ! vm "$1" "grep ^groups /tmp/$2.log | tail -n 1 >/tmp/$2.before" ||
		! patient "$1" "grep ^groups /tmp/$2.log | tail -n 1 | cat /tmp/$2.before - |
			awk 'NR == 1 { sent = \$2; received = \$3 } END { exit !(\$2 > sent && \$3 > received) }'" 60; then
		story "$1" "$2"
		return 1
	fi
}

# halt NAME: end traffic in good order.
halt() {
	vm a "kill -TERM \$(cat /tmp/$1.pid)" && ended a "$1" Stopped && ended b "$1" Stopped
}

# hca VM COMMAND PROPERTY [VALUE]: qom-get or qom-set of the HCA of a VM.
hca() {
	lab qmp "$1" "$2" "{\"path\": \"/machine/peripheral/hca0\", \"property\": \"$3\"${4:+, \"value\": $4}}"
}

# objects VM: how many objects the device holds.
objects() {
	hca "$1" qom-get objects | tr -d '"'
}

# holds VM OBJECTS: wait until the device holds exactly these.
holds() {
	local end=$((SECONDS + 30))
	until [ "$(objects "$1")" = "$2" ]; do
		if [ $SECONDS -ge $end ]; then
			echo "the device of VM $1 has $(objects "$1"), expected $2"
			return 1
		fi
		sleep 0.2
	done
}

# shellcheck disable=SC2034  # for the tests
nothing="eqs=0 cqs=0 pds=0 mrs=0 qps=0 ahs=0 mcast=0"

# userless VM: no user's program has an object in the kernel.
userless() {
	patient "$1" "printf 'resource show %s\n' ctx pd mr cq qp cm_id | rdma -b - >/tmp/held && ! grep ' pid ' /tmp/held" 20
}

# rest: note what the kernel's own clients hold while the subnet is up and nobody works.
rest() {
	local vm before
	for vm in a b; do
		before=
		until [ "$(objects $vm)" = "$before" ]; do
			before=$(objects $vm)
			sleep 1
		done
		echo "$before" >"$scratch/idle.$vm"
	done
}

# recovered VM: it is as before the round.
recovered() {
	active "$1" && userless "$1" && holds "$1" "$(cat "$scratch/idle.$1")" && lab dmesg --faults "$1"
}

# intact: both VMs are as before the round.
intact() {
	local other code=0
	recovered a >"$scratch/recovered" 2>&1 &
	other=$!
	recovered b || code=1
	wait $other || code=1
	cat "$scratch/recovered"
	return $code
}

# usage VM: kB of memory of the VM's QEMU without the guest's memory and the translator's buffer (mappings of 128 MiB and
# more), its open files, and its threads.
usage() {
	local pid
	pid=$(process "$1")
	awk '/^Size:/ { big = $2 >= 131072 } /^Rss:/ && !big { sum += $2 } END { printf "%d ", sum }' "/proc/$pid/smaps"
	find "/proc/$pid/fd" -mindepth 1 | wc -l | tr '\n' ' '
	find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l
}

# translated VM: how many blocks of code the translator of the VM's QEMU has notes on; none, where it has no translator.
translated() {
	local count
	count=$(lab qmp "$1" x-query-jit 2>/dev/null | sed -nE 's/.*nTB count +([0-9]+).*/\1/p')
	echo "${count:-0}"
}

# Growth of QEMU's memory that is no leak.
#
# The translator keeps a node of a tree for each block of code that it has seen, also of modules and programs which are
# gone, until its buffer is full and it forgets all of them. Twelve rounds of the module, with the heap counted
# (qemu-device/qemu/examples/heap.rs), took 22,654 blocks of the heap a round more, and the translator threw away some
# 21,900 blocks of code a round: one note for each, of 40 bytes, which are 48 of the heap, and nothing else grew. Without a guest the same heap
# is flat to the block (qemu-device/qemu/tests/flat.rs).
#
# What is left: kB at all, because tables of the translator double, from 4 MiB to 8 MiB, and rings are touched for the
# first time; and kB for each round. A link's rings are 8 MiB: their leak is seen in a few rounds, that of an object in
# its count.
note_size=48
growth=12288
growth_each=48

# flat VM BEFORE AFTER NOTES ROUNDS: QEMU's memory and files are not more than before, but for so many notes.
flat() {
	local memory files after_memory after_files notes=$(($4 * note_size / 1024))
	read -r memory files _ <<<"$2"
	read -r after_memory after_files _ <<<"$3"
	echo "# VM $1's QEMU after $5 rounds: $((after_memory - memory)) kB more, of which $notes kB are the translator's" \
		"notes; $((after_files - files)) files more" >&3
	if [ $((after_memory - memory - notes)) -gt $((growth + growth_each * $5)) ] || [ "$after_files" -gt "$files" ]; then
		echo "QEMU of VM $1: memory (kB), files, threads were $2, and are $3 after $5 rounds," \
			"$notes kB of it for the translator's notes"
		return 1
	fi
}

# rounds VMS ROUND: do a round (a function) again and again; everything is as before after each, and the memory of the
# QEMUs of these VMs is flat, the first round apart, which warms up.
rounds() {
	local vms=$1 round=$2 n vm now started=$SECONDS every=$(((OCHRE_ROUNDS + 9) / 10))
	local -A before notes most
	rest
	for n in $(seq "$OCHRE_ROUNDS"); do
		if ! { "$round" "$n" && intact; }; then
			echo "in round $n of $OCHRE_ROUNDS"
			return 1
		fi
		if [ "$n" -eq 1 ]; then
			for vm in $vms; do
				before[$vm]=$(usage "$vm")
				notes[$vm]=$(translated "$vm")
				most[$vm]=${notes[$vm]}
			done
		fi
		# What the translator has forgotten, the heap has still.
		for vm in $vms; do
			now=$(translated "$vm")
			[ "$now" -le "${most[$vm]}" ] || most[$vm]=$now
		done
		if [ $((n % every)) -eq 0 ]; then
			echo "# $n of $OCHRE_ROUNDS rounds after $((SECONDS - started)) s" >&3
		fi
	done
	for vm in $vms; do
		flat "$vm" "${before[$vm]}" "$(usage "$vm")" $((most[$vm] - notes[$vm])) $((OCHRE_ROUNDS - 1)) || return 1
	done
}
