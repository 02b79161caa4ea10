#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Inside the root: take the overlay of a checkout into QEMU's source, and build.
#
#   qemu-build.sh TREE CHECKOUT
#
# TREE has src/ (from qemu-source.sh) and gets build/. Only files whose contents differ are copied, so that
# checkouts may share a cache: ninja rebuilds what differs between them. QEMU_CONFIGURE adds options.
set -eu
tree=$1
checkout=$2
overlay=$checkout/qemu-device/qemu/overlay

rsync -r --checksum --no-times --delete --exclude=/checkout "$overlay/hw/ochre/" "$tree/src/hw/ochre/"
rsync -r --checksum --no-times "$overlay/configs/" "$tree/src/configs/"
# The checkout whose Rust core is linked in.
if [ "$(cat "$tree/src/hw/ochre/checkout" 2>/dev/null)" != "$checkout" ]; then
	echo "$checkout" >"$tree/src/hw/ochre/checkout"
fi

options="--target-list=x86_64-softmmu --without-default-features --without-default-devices
--with-devices-x86_64=ochre --enable-tcg --enable-kvm --enable-fdt=system --enable-virtfs --enable-attr
--enable-cap-ng --enable-vhost-user --disable-docs --disable-tools --disable-install-blobs
--disable-guest-agent --disable-user --with-pkgversion=ochre
--firmwarepath=/usr/share/seabios:/usr/share/qemu ${QEMU_CONFIGURE:-}"

# A build with other options, or one whose configuration was interrupted, is begun anew.
if [ "$(cat "$tree/build/.configured" 2>/dev/null)" != "$options" ]; then
	rm -rf "$tree/build"
	mkdir -p "$tree/build"
	cd "$tree/build"
	# shellcheck disable=SC2086  # a list of options
	../src/configure $options
	echo "$options" >.configured
fi
cd "$tree/build"
ninja qemu-system-x86_64
