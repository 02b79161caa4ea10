#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Formatting, lints and the layout of the sources. Ends with the number of checks that failed, as exit code 0 or 1.
set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=${OCHRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ochre}
enter=$top/scripts/enter.sh
driver=drivers/infiniband/hw/ochre
logs=$top/build/check
mkdir -p "$logs"
bad=0
cd "$top" || exit 1

# check NAME COMMAND...: run one check, show its output only if it fails.
check() {
	local name=$1
	shift
	printf '  %-52s ' "$name"
	if "$@" >"$logs/log" 2>&1; then
		echo ok
	else
		echo failed
		sed 's/^/    /' "$logs/log"
		bad=$((bad + 1))
	fi
}

# The root file leads to all others.
kernel_format() {
	"$enter" rustfmt --check --edition 2021 --config-path "$cache/linux/.rustfmt.toml" "$driver/ochre_main.rs"
}

# The module is built anew in a folder of its own with clippy in place of the compiler.
kernel_clippy() {
	local output=$top/build/module-clippy
	rm -rf "$output"
	CLIPPY=1 "$enter" "$top/scripts/setup/module.sh" "$(readlink -f "$cache/linux")" "$top" "$output" >"$logs/clippy.log" 2>&1 || {
		cat "$logs/clippy.log"
		return 1
	}
	if grep -qE '^warning' "$logs/clippy.log"; then
		cat "$logs/clippy.log"
		return 1
	fi
}

# Files of the project: what git would commit.
sources() {
	git ls-files -co --exclude-standard -z
}

spdx() {
	local file first
	while IFS= read -r -d '' file; do
		case $file in
		Cargo.lock | .gitignore | LICENSES/* | *.md | *.json | *.svg | *.png | *.bin | *.pcap | *.erf | *.proptest-regressions) continue ;;
		esac
		[ -s "$file" ] && [ ! -L "$file" ] || continue
		first=$(head -n2 "$file")
		case $first in
		*SPDX-License-Identifier:*) ;;
		*) echo "$file: no SPDX-License-Identifier in its first two lines" ;;
		esac
	done < <(sources) | grep . && return 1
	return 0
}

length() {
	local file lines
	while IFS= read -r -d '' file; do
		case $file in
		*.rs | *.c | *.h | *.sh | *.py)
			lines=$(wc -l <"$file")
			[ "$lines" -le 600 ] || echo "$file: $lines lines, 600 at most: give its second subject a file of its own"
			;;
		esac
	done < <(sources) | grep . && return 1
	return 0
}

# Paths of one machine and hosts of mirrors and registries have no place in the sources.
places() {
	sources | xargs -0 grep -InE '(^|[[:space:]"=(])/(work|root|home)/|deb\.debian\.org|crates\.io/|pypi\.org|static\.rust-lang' -- |
		grep -vE '^(Cargo\.lock|scripts/check\.sh):' && return 1
	return 0
}

unfinished() {
	sources | xargs -0 grep -InE '\b(TODO|FIXME|XXX|HACK|unimplemented!|todo!)' -- | grep -vE '^scripts/check\.sh:' && return 1
	return 0
}

# No panic that bytes of a guest or of a wire could reach: the device's parts do without unwrap and expect
# outside of tests.
forbids() {
	local file
	for file in qemu-device/wire/src/lib.rs qemu-device/hca/src/lib.rs include/ochre-hw/src/lib.rs; do
		grep -q '#!\[forbid(unsafe_code)\]' "$file" || echo "$file: no #![forbid(unsafe_code)]"
	done | grep . && return 1
	return 0
}

# Every test that the matrix names is there: `file` or `file::test`, files from the top or from qemu-device.
# A test is a function with #[test], or a scenario that the simulation lists with its seeds.
matrix() {
	local entry file name path
	# shellcheck disable=SC2016  # the quotes are the text's
	while IFS= read -r entry; do
		file=${entry%%::*}
		path=$file
		[ -f "$path" ] || path=qemu-device/$file
		if [ ! -f "$path" ]; then
			echo "tests/README.md: $file is no file"
			continue
		fi
		[ "$entry" != "$file" ] || continue
		name=${entry##*::}
		grep -B6 -E "^[[:space:]]*fn $name\\(" "$path" | grep -q '#\[test\]' ||
			grep -qE "^[[:space:]]*$name: [0-9]+\.\.[0-9]+,\$" "$path" ||
			echo "tests/README.md: $path has no test $name"
	done < <(grep -oE '`[a-z0-9_/.-]+\.(rs|sh)(::[a-z0-9_]+)?`' tests/README.md | tr -d '`' | sort -u) | grep . && return 1
	return 0
}

shell() {
	git ls-files -co --exclude-standard | grep -E '(\.sh|^\.ci/run)$' | xargs "$enter" shellcheck -x
}

check "rustfmt: workspace" "$enter" cargo fmt --all --check
if [ -d "$driver" ]; then
	check "rustfmt: kernel driver" kernel_format
fi
check "clippy: workspace, all targets" "$enter" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
if [ -d "$driver" ]; then
	check "clippy: kernel driver" kernel_clippy
fi
check "shellcheck" shell
check "every file has its SPDX line" spdx
check "files have at most 600 lines" length
check "no paths or hosts of one machine" places
check "nothing left to do in the sources" unfinished
check "tests of the matrix are there" matrix
check "unsafe is forbidden where it has no place" forbids

if [ "$bad" -ne 0 ]; then
	echo "check: $bad failed"
	exit 1
fi
echo "check: all ok"
