#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Inside the root: unpack the distribution's QEMU source and add the two lines that take in our folder.
#
#   qemu-source.sh DOWNLOADS SRC
#
# SRC must not exist.
set -eu
downloads=$1
src=$2

mkdir -p "$downloads"
cd "$downloads"
apt-get update -q
apt-get source -q --download-only qemu
# shellcheck disable=SC2012  # names of our own making
dsc=$(ls -v qemu_*.dsc | tail -n1)
mkdir -p "$(dirname "$src")"
# The distribution's patches are needed: they do without the firmware blobs that its source leaves out.
dpkg-source --no-check -x "$dsc" "$src"
cd "$src"
version=$(cat VERSION)
if [ "${version%%.*}" -lt 10 ]; then
	echo "OCHRE: QEMU 10.0 or later is needed, the mirror's source is $version" >&2
	exit 1
fi
echo "subdir('ochre')" >>hw/meson.build
echo "source ochre/Kconfig" >>hw/Kconfig
