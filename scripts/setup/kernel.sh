#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Inside the root: prepare the stock kernel's source tree, with its Rust metadata, for building modules.
#
#   kernel.sh RELEASE TREE
#
# TREE must not exist. Its crate hashes match the distribution's image, so modules built against it load
# in the stock kernel.
set -eu
release=$1
tree=$2
series=$(cut -d. -f1,2 <<<"$release")
jobs=$(nproc)

mkdir -p "$tree"
tar -xf "/usr/src/linux-source-$series.tar.xz" -C "$tree" --strip-components=1
cd "$tree"

version=$(make -s kernelversion)
case $release in
"$version"*) ;;
*)
	echo "OCHRE: the source package is $version, the image is $release; update the root file system" >&2
	exit 1
	;;
esac
cp "/boot/config-$release" .config
printf '%s' "${release#"$version"}" >localversion-ochre
make -s olddefconfig
if ! grep -q '^CONFIG_RUST=y' .config; then
	echo "OCHRE: this kernel's configuration cannot have Rust here: $(make -s rustavailable 2>&1 | tail -n1)" >&2
	exit 1
fi
make -j"$jobs" prepare
cp "/usr/src/linux-headers-$release/Module.symvers" .
make -j"$jobs" modules_prepare
made=$(make -s kernelrelease)
if [ "$made" != "$release" ]; then
	echo "OCHRE: the prepared tree says $made, the image is $release" >&2
	exit 1
fi
