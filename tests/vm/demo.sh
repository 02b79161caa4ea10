#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The demonstration, and what it reports for programs.
# lab: none
# limit: 300
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

report=$OCHRE_TOP/build/demo/report.json

demo() {
	"$OCHRE_LAB_PROGRAM" demo
}

# The report holds what programs expect of it.
fields() {
	python3 - "$report" <<-'END'
		import json, sys

		report = json.load(open(sys.argv[1]))
		assert report["accel"] in ("kvm", "tcg"), report["accel"]
		for key in ("kernel", "qemu", "capture"):
		    assert isinstance(report[key], str) and report[key], key
		assert report["wall_s"] > 0
		assert len(report["ports"]) == 2
		for port in report["ports"]:
		    assert port["state"] == "ACTIVE" and port["link_layer"] == "InfiniBand", port
		    assert port["lid"] > 0 and port["device"] == "ochre_0" and port["port"] == 1, port
		    assert port["counters"]["PortXmitPkts"] > 0 and port["counters"]["PortRcvPkts"] > 0, port
		assert len({port["lid"] for port in report["ports"]}) == 2
		names = [program["name"] for program in report["programs"]]
		for name in ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ib_write_bw", "ib_read_bw",
		             "ib_send_bw", "ib_send_lat", "ib_write_lat", "ib_atomic_lat", "ibv_devinfo", "rdma"):
		    assert name in names, name
		for program in report["programs"]:
		    assert program["ok"] is True and program["argv"], program
		    if program["name"].endswith("_bw"):
		        assert program["figures"]["bw_MBps"] > 0, program
		    if program["name"].endswith("_lat"):
		        assert 0 < program["figures"]["lat_min_us"] <= program["figures"]["lat_typical_us"], program
		flow = report["flow_control"]
		assert flow["xmit_wait"] > 0 and flow["packets_dropped"] == 0 and flow["data_ok"] is True, flow
	END
}

# A packet analyser understands the capture: nothing malformed, and all kinds of packets.
capture() {
	local file
	file=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["capture"])' "$report")
	tshark -r "$file" --disable-protocol rpcordma -T fields \
		-e infiniband.lrh.vl -e infiniband.bth.opcode -e infiniband.mad.mgmtclass -e _ws.expert.message \
		>"$scratch/packets" 2>"$scratch/errors" || { cat "$scratch/errors"; return 1; }
	awk -F'\t' '
		{ packets++ }
		$1 == "0x0f" { management++ }
		$2 != "" && $2 < 32 { rc++ }
		$2 != "" && $2 >= 32 && $2 < 64 { uc++ }
		$2 == 100 || $2 == 101 { ud++ }
		$4 ~ /[Mm]alformed|[Ii]nvalid|[Bb]ad/ { broken++; print "broken: " $0 }
		END {
			printf "%d packets: %d on VL15, %d RC, %d UC, %d UD, %d broken\n", packets, management, rc, uc, ud, broken
			exit !(management && rc && uc && ud && !broken)
		}' "$scratch/packets"
}

# Our own checker agrees, with every CRC and length in it.
checked() {
	local file
	file=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["capture"])' "$report")
	"$(dirname "$OCHRE_LAB_PROGRAM")/ochre-check-capture" "$file"
}

plan 4
check "the demonstration is well" demo
check "its report is complete" fields
check "its capture reads without fault" capture
check "every CRC, length and header in its capture is right" checked
