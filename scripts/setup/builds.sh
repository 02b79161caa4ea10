# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2154  # lib.sh and step() set the variables
# Steps: what is built from the checkout, and QEMU, which takes a part of it in.

# What every cargo build of the checkout depends on.
cargo_inputs() {
	root_identity
	echo "$top"
	hash_files "$top/Cargo.toml" "$top/Cargo.lock" "$top/include"
}

qemusource_inputs() {
	root_identity
	hash_files "$setup/qemu-source.sh"
}

qemusource_result() {
	echo "$cache/qemu/src/VERSION"
}

qemusource_build() {
	mkdir -p "$cache/qemu-trees"
	if ! made_aside "$cache/qemu-trees" "$hash"; then
		need_space 3000
		"$enter" "$setup/qemu-source.sh" "$cache/downloads" "$cache/qemu-trees/$hash/src"
		touch "$cache/qemu-trees/$hash/.ochre-whole"
	fi
	publish qemu "qemu-trees/$hash"
}

qemu_inputs() {
	cargo_inputs
	cat "$stamps/qemusource" 2>/dev/null || true
	hash_files "$setup/qemu-build.sh" "$top/qemu-device"
}

qemu_result() {
	echo "$cache/qemu/build/qemu-system-x86_64"
}

qemu_build() {
	"$enter" "$setup/qemu-build.sh" "$(readlink -f "$cache/qemu")" "$top"
	"$enter" "$cache/qemu/build/qemu-system-x86_64" -device ochre-hca,help | grep -q ochre-hca
}

workspace_inputs() {
	cargo_inputs
	hash_files "$top/qemu-device" "$top/drivers/rdma-core" "$top/scripts/lab" "$top/tests/capture" "$top/tests/hostile" "$top/tests/vm/traffic"
	cat "$stamps/headers" 2>/dev/null || true
}

workspace_result() {
	echo "$cache/target/release/ochre-lab"
	echo "$top/build/provider/libochre-rdmav34.so"
}

workspace_build() {
	# Fuzz targets run in tests only.
	"$enter" cargo build --manifest-path "$top/Cargo.toml" --release --workspace --exclude ochre-fuzz --locked
	mkdir -p "$top/build/provider"
	install -m 755 "$cache/target/release/libochre.so" "$top/build/provider/.new"
	mv "$top/build/provider/.new" "$top/build/provider/libochre-rdmav34.so"
	echo 'driver ochre' >"$top/build/provider/ochre.driver"
}

module_inputs() {
	cargo_inputs
	cat "$stamps/kernel" 2>/dev/null || true
	hash_files "$setup/module.sh" "$top/drivers/infiniband"
}

module_result() {
	echo "$top/build/module/ochre.ko"
}

module_build() {
	"$enter" "$setup/module.sh" "$(readlink -f "$cache/linux")" "$top" "$top/build/module"
}

moduledebug_inputs() {
	cargo_inputs
	cat "$stamps/kerneldebug" 2>/dev/null || true
	hash_files "$setup/module.sh" "$top/drivers/infiniband"
}

moduledebug_result() {
	echo "$top/build/module-debug/ochre.ko"
}

moduledebug_build() {
	"$enter" "$setup/module.sh" "$(readlink -f "$cache/linux-debug")" "$top" "$top/build/module-debug"
}
