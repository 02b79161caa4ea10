#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The kernel driver tells a provider of another interface version so, and serves one of its own.
# lab: pair
# limit: 60
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/lib.sh"

plan 3
check "the subnet is up" active b
check "another major version is refused as such" vm a "python3 '$here/abi.py' other"
check "reserved bytes must be zero, and the own version is served" vm a "python3 '$here/abi.py' own"
