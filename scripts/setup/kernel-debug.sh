#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Inside the root: build a debug kernel, and the tree that modules for it are built against, from the
# distribution's source.
#
#   kernel-debug.sh RELEASE TREE FRAGMENT
#
# TREE is new, or what an interrupted call left there. FRAGMENT is the whole configuration: what it does not name
# is off.
set -eu
release=$1
tree=$2
fragment=$3
series=$(cut -d. -f1,2 <<<"$release")

if [ ! -e "$tree/.ochre-unpacked" ]; then
	rm -rf "$tree"
	mkdir -p "$tree"
	tar -xf "/usr/src/linux-source-$series.tar.xz" -C "$tree" --strip-components=1
	touch "$tree/.ochre-unpacked"
fi
cd "$tree"
build() {
	make CC=clang -j"$(nproc)" "$@"
}

build -s KCONFIG_ALLCONFIG="$fragment" allnoconfig
# A line that other choices exclude is dropped without a word.
while read -r line; do
	case $line in
	CONFIG_*) grep -qxF "$line" .config || lost=${line%%=*} ;;
	"# CONFIG_"*" is not set") ! grep -q "^${line:2:-11}=" .config || lost=${line:2:-11} ;;
	*) continue ;;
	esac
	if [ -n "${lost:-}" ]; then
		if [ "$lost" = CONFIG_RUST ]; then
			echo "OCHRE: this kernel cannot have Rust here: $(build -s rustavailable 2>&1 | tail -n1)" >&2
		else
			echo "OCHRE: the debug kernel cannot have $lost as ${fragment##*/} says; something that it depends on is off" >&2
		fi
		exit 1
	fi
done <"$fragment"

build bzImage modules
# Modules as virtme-ng gives them to a guest: links into the tree, and their dependencies.
virtme-prep-kdir-mods
