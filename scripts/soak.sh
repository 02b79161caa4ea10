#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Let the simulation and the fuzz targets go on with new seeds for a time.
#
#   scripts/soak.sh [MINUTES]
#
# Half of the time is the simulation's, half the fuzz targets'. SEED is the first seed of both; without it
# the clock gives one, so that each soak tries something new. Ends at the first part that fails.
set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
enter=$top/scripts/enter.sh
minutes=${1:-10}
if ! [[ $minutes =~ ^[0-9]+$ ]] || [ "$minutes" -eq 0 ]; then
	echo "soak: \"$minutes\" is no number of minutes; for an hour: make soak SOAK=60" >&2
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

targets=$("$enter" "${test[@]}" -p ochre-fuzz --test fuzz -- list 2>/dev/null | grep -c .)
if [ "$targets" -eq 0 ]; then
	echo "soak: the fuzz targets do not build; see: make test-unit" >&2
	exit 1
fi
echo "== fuzz: $targets targets, $((half / targets)) s each, seed $seed"
"$enter" "${test[@]}" -p ochre-fuzz --test fuzz -- --seconds $((half / targets)) --seed "$seed" --progress
