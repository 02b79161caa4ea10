#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Inside the root: build the kernel module against a kernel tree.
#
#   module.sh TREE CHECKOUT OUTPUT
#
# The source folder stays as it is: objects and ochre.ko land in OUTPUT.
set -eu
tree=$1
checkout=$2
output=$3
series=7.3

if [ ! -e "$tree/Makefile" ]; then
	echo "OCHRE: $tree is no kernel tree: it has no Makefile" >&2
	exit 1
fi
release=$(cat "$tree/include/config/kernel.release" 2>/dev/null || true)
if [ -z "$release" ]; then
	echo "OCHRE: the kernel tree $tree is not prepared: run 'make prepare modules_prepare' in it" >&2
	exit 1
fi
case $release in
"$series" | "$series"[.-]*) ;;
*)
	echo "OCHRE: the kernel tree $tree is $release; the driver is written for the $series series (the kernel's Rust interface changes with every release)" >&2
	exit 1
	;;
esac
if ! grep -q '^CONFIG_RUST=y' "$tree/.config" || [ ! -e "$tree/rust/libkernel.rmeta" ]; then
	echo "OCHRE: the kernel tree $tree has no Rust: it needs CONFIG_RUST=y and 'make prepare'" >&2
	exit 1
fi
mkdir -p "$output"
# A build of another tree or folder leaves nothing behind that this one could take for its own.
if [ "$(cat "$output/.tree" 2>/dev/null)" != "$tree $release" ]; then
	find "$output" -mindepth 1 -delete
	echo "$tree $release" >"$output/.tree"
fi
# Modules of a kernel that clang has built are clang's too.
compiler=
! grep -q '^CONFIG_CC_IS_CLANG=y' "$tree/.config" || compiler=clang
make ${compiler:+"CC=$compiler"} ${CLIPPY:+"CLIPPY=$CLIPPY"} -C "$tree" M="$checkout/drivers/infiniband/hw/ochre" MO="$output" -j"$(nproc)" modules
test -s "$output/ochre.ko"
