#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Lets the compiler count the edges that a program runs through, for guided fuzzing: cargo's RUSTC_WORKSPACE_WRAPPER.
# Libraries of others are not built by it. The targets are, because generic code of the firmware is compiled with them.
# Cargo keeps what it builds so apart from all else.
rustc=$1
shift
case " $* " in
*" --crate-name ochre_crc "* | *" --crate-name ochre_wire "* | *" --crate-name ochre_link "* | *" --crate-name ochre_hca "* | \
	*" --crate-name ochre_capture "* | *" --crate-name ochre_lab "* | *" --crate-name ochre_fuzz "*)
	set -- "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
		-Cllvm-args=-sanitizer-coverage-inline-8bit-counters
	;;
esac
exec "$rustc" "$@"
