#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Let the simulation and the fuzz targets go on with new seeds for a time, then go through the life cycle many times.
#
#   scripts/soak.sh [MINUTES [ROUNDS]]
#
# Half of the time is the simulation's, half the fuzz targets'. SEED is the first seed of both; without it
# the clock gives one, so that each soak tries something new. Each way of the life cycle has ROUNDS rounds after that
# (100; none with 0), and a machine stands still for a minute. Ends at the first part that fails.
#
# Fuzzing is guided by the edges that the code runs through. Inputs that reach new ones stay in the cache, and the next
# soak goes on from them.
set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=${OCHRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ochre}
enter=$top/scripts/enter.sh
minutes=${1:-10}
rounds=${2:-100}
if ! [[ $minutes =~ ^[0-9]+$ ]] || [ "$minutes" -eq 0 ]; then
	echo "soak: \"$minutes\" is no number of minutes; for an hour: make soak SOAK=60" >&2
	exit 2
fi
if ! [[ $rounds =~ ^[0-9]+$ ]]; then
	echo "soak: ROUNDS is \"$rounds\", expected a number" >&2
	exit 2
fi
seed=${SEED:-$(date +%s)}
if ! [[ $seed =~ ^[0-9]+$ ]]; then
	echo "soak: SEED is \"$seed\", expected a number" >&2
	exit 2
fi
half=$((minutes * 30))
cd "$top" || exit 1
test=(cargo test --profile checked --quiet --locked)

# Scenarios run as many at a time as there are processors; each gets its part.
scenarios=$("$enter" "${test[@]}" -p ochre-hca --test simulation -- list 2>/dev/null | grep -c .)
if [ "$scenarios" -eq 0 ]; then
	echo "soak: the simulation does not build; see: make test-unit" >&2
	exit 1
fi
seconds=$((half * $(nproc) / scenarios + 1))
echo "== simulation: $scenarios scenarios, $seconds s each, from seed $seed"
"$enter" "${test[@]}" -p ochre-hca --test simulation -- --seconds "$seconds" --seed "$seed" || exit 1

fuzz=("$enter" env RUSTC_WORKSPACE_WRAPPER="$top/scripts/rustc-coverage.sh" "${test[@]}" -p ochre-fuzz --test fuzz --)
targets=$("${fuzz[@]}" list 2>/dev/null | grep -c .)
if [ "$targets" -eq 0 ]; then
	echo "soak: the fuzz targets do not build; see: make test-unit" >&2
	exit 1
fi
echo "== fuzz: $targets targets, $((half / targets)) s each, seed $seed, inputs kept in $cache/fuzz"
"${fuzz[@]}" --seconds $((half / targets)) --seed "$seed" --corpus "$cache/fuzz" --progress || exit 1

[ "$rounds" -gt 0 ] || exit 0
echo "== what QEMU takes of the host, without a guest: $((5 * rounds)) rounds of each way"
"$enter" env OCHRE_ROUNDS="$rounds" "${test[@]}" -p ochre-qemu --example heap --test flat || exit 1
echo "== life cycle: $rounds rounds of each way"
"$enter" env OCHRE_PAUSE=60 "$cache/target/release/ochre-lab" test --rounds "$rounds" \
	bind cable hotplug kill module pause peer reboot rescan reset
