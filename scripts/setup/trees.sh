# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2154  # lib.sh and step() set the variables
# Steps: the kernel trees, stock and debug, and the private headers of rdma-core. Each is made at a path of its own, which
# holds the hash of its inputs, and published by moving a symbolic link.

# publish LINK TARGET: make LINK, in the cache, point to TARGET, at once.
publish() {
	rm -rf "$cache/.$1.new"
	ln -s "$2" "$cache/.$1.new"
	mv -T "$cache/.$1.new" "$cache/$1"
}

# made_aside DIRECTORY HASH: what was made earlier and is whole; drops all else in DIRECTORY.
made_aside() {
	local path
	for path in "$1"/*; do
		if [ -e "$path" ] && { [ "$path" != "$1/$2" ] || [ ! -e "$path/.ochre-whole" ]; }; then
			rm -rf --one-file-system "$path"
		fi
	done
	[ -e "$1/$2/.ochre-whole" ]
}

# Kernel release and tools of the root: what is built with it depends on these.
root_identity() {
	cat "$cache/root/etc/ochre-root" "$cache/root/etc/ochre-tools" 2>/dev/null || true
}

kernel_inputs() {
	root_identity
	hash_files "$setup/kernel.sh"
}

kernel_result() {
	echo "$cache/linux/include/config/kernel.release"
}

kernel_build() {
	mkdir -p "$cache/kernel"
	if ! made_aside "$cache/kernel" "$hash"; then
		need_space 3000
		"$enter" "$setup/kernel.sh" "$(cat "$cache/root/etc/ochre-root")" "$cache/kernel/$hash"
		touch "$cache/kernel/$hash/.ochre-whole"
	fi
	publish linux "kernel/$hash"
}

kerneldebug_inputs() {
	root_identity
	hash_files "$setup/kernel-debug.sh" "$setup/kernel-debug.config"
}

kerneldebug_result() {
	echo "$cache/linux-debug/arch/x86/boot/bzImage"
}

kerneldebug_build() {
	local path tree=$cache/kernel-debug/$hash
	# A build that was interrupted goes on where it was; trees of other inputs go.
	mkdir -p "$cache/kernel-debug"
	for path in "$cache/kernel-debug"/*; do
		[ "$path" = "$tree" ] || rm -rf --one-file-system "$path"
	done
	if [ ! -e "$tree/.ochre-whole" ]; then
		need_space 5000
		"$enter" "$setup/kernel-debug.sh" "$(cat "$cache/root/etc/ochre-root")" "$tree" "$setup/kernel-debug.config"
		touch "$tree/.ochre-whole"
	fi
	publish linux-debug "kernel-debug/$hash"
}

kerneldebug_progress() {
	echo "$(grep -cE '^  (CC|AS|RUSTC)' "$1" || true) files compiled"
}

headers_inputs() {
	root_identity
	hash_files "$setup/rdma-core.sh"
}

headers_result() {
	echo "$cache/rdma-core/include/infiniband/driver.h"
}

headers_build() {
	mkdir -p "$cache/headers"
	if ! made_aside "$cache/headers" "$hash"; then
		"$enter" "$setup/rdma-core.sh" "$cache/downloads" "$cache/headers/$hash"
		touch "$cache/headers/$hash/.ochre-whole"
	fi
	publish rdma-core "headers/$hash"
}
