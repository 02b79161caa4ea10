#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Build the kernel module, against the stock kernel's tree or another tree of the same series.
#
#   scripts/modules.sh [KDIR]
set -eu
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
kdir=${1:-}

if [ -z "$kdir" ]; then
	exec "$top/scripts/setup.sh" module
fi
if [ ! -d "$kdir" ]; then
	echo "modules: KDIR=$kdir is no folder" >&2
	exit 1
fi
kdir=$(cd "$kdir" && pwd -P)
OCHRE_QUIET=1 "$top/scripts/setup.sh" root
mkdir -p "$top/build"
log=$top/build/modules.log
if ! OCHRE_BIND=$kdir "$top/scripts/enter.sh" "$top/scripts/setup/module.sh" \
	"$kdir" "$top" "$top/build/module-kdir" >"$log" 2>&1; then
	reason=$(sed -n 's/^OCHRE: //p' "$log" | tail -n1)
	if [ -n "$reason" ]; then
		echo "modules: $reason" >&2
	else
		cat "$log" >&2
	fi
	exit 1
fi
echo "  build/module-kdir/ochre.ko, for $(cat "$kdir/include/config/kernel.release")"
