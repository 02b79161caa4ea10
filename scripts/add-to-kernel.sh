#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Put the driver into a kernel tree: its folder, and the two lines that make the kernel's build see it.
#
#   scripts/add-to-kernel.sh TREE
#
# Run again, it brings the folder up to date and leaves the lines alone. Build with
# CONFIG_INFINIBAND_OCHRE=m.
set -eu
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
driver=$top/drivers/infiniband/hw/ochre

if [ $# -ne 1 ]; then
	echo "usage: scripts/add-to-kernel.sh TREE" >&2
	exit 2
fi
tree=$1
if [ ! -e "$tree/drivers/infiniband/hw/Makefile" ] || [ ! -e "$tree/drivers/infiniband/Kconfig" ]; then
	echo "add-to-kernel: $tree is no kernel tree: it has no drivers/infiniband" >&2
	exit 1
fi

folder=$tree/drivers/infiniband/hw/ochre
mkdir -p "$folder"
find "$folder" -mindepth 1 -delete
(cd "$driver" && tar -cf - --exclude='*.o' --exclude='*.ko' --exclude='*.mod*' --exclude='.*.cmd' \
	--exclude='modules.order' --exclude='Module.symvers' .) | tar -xf - -C "$folder"
# The hardware contract and the user ABI, where the driver's Makefile looks for them first.
for contract in ochre-hw uapi/ochre-abi; do
	mkdir -p "$folder/include/$contract"
	cp -R "$top/include/$contract/src" "$folder/include/$contract/"
done

makefile=$tree/drivers/infiniband/hw/Makefile
# shellcheck disable=SC2016  # make's variable
line='obj-$(CONFIG_INFINIBAND_OCHRE) += ochre/'
grep -qF "$line" "$makefile" || echo "$line" >>"$makefile"

kconfig=$tree/drivers/infiniband/Kconfig
line='source "drivers/infiniband/hw/ochre/Kconfig"'
if ! grep -qF "$line" "$kconfig"; then
	# Beside the other drivers' lines, within the menu that depends on InfiniBand's address translation.
	last=$(grep -n '^source "drivers/infiniband/hw/' "$kconfig" | tail -n1 | cut -d: -f1)
	sed -i "${last}a $line" "$kconfig"
fi
echo "  $tree/drivers/infiniband/hw/ochre: CONFIG_INFINIBAND_OCHRE=m builds the driver"
