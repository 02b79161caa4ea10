# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2034  # used by the files that source this one
# What every set-up step uses: places, messages, stamps.
#
# A step NAME has two functions. `NAME_inputs` prints everything that its result depends on; `NAME_build`
# makes the result aside and moves it into place. A stamp keeps the hash of the inputs that the result was
# made from; a step whose stamp is right and whose result (`NAME_result` prints its paths) exists is skipped.
# A step of many minutes has a third, `NAME_progress LOG`, that says how far it is.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cache=${OCHRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ochre}
setup=$top/scripts/setup
enter=$top/scripts/enter.sh
stamps=$cache/stamps
logs=$cache/logs
# Kernel series that the driver is written for, Debian release that has it, architecture.
series=7.3
suite=trixie
# Space that a set-up from nothing needs, MiB.
need_mib=12000

# die MESSAGE: end the set-up with one clear message.
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

# hash_files PATH...: the contents and names of files, and of all files below folders.
hash_files() {
	find "$@" -type f ! -name '*.swp' ! -path '*/target/*' -print0 2>/dev/null | sort -z | xargs -0 -r sha256sum |
		sed "s|  $top/|  |"
}

# free_mib DIRECTORY: space left, MiB.
free_mib() {
	df -Pm "$1" | awk 'NR == 2 { print $4 }'
}

# need_space MIB: end with a message if the cache's file system has less.
need_space() {
	local free
	free=$(free_mib "$cache")
	[ "$free" -ge "$1" ] ||
		die "not enough disk space: $cache has $free MiB free, $1 MiB are needed (set OCHRE_CACHE to a roomier place)"
}

# explain LOG: the reason of a failure, as one line, from what the failed tools said.
explain() {
	local reason
	reason=$(sed -n 's/^OCHRE: //p' "$1" | tail -n1)
	if [ -z "$reason" ] && grep -q 'No space left on device' "$1"; then
		reason="the disk is full: $cache has $(free_mib "$cache") MiB free"
	fi
	if [ -z "$reason" ] && grep -qE 'Temporary failure resolving|Could not resolve|Unable to connect|Could not connect|Failed to fetch|spurious network error' "$1"; then
		reason="the package mirror or registry cannot be reached: $(grep -E 'Temporary failure|ould not resolve|to connect|Failed to fetch|spurious network' "$1" | head -n1 | sed 's/^[ \t]*//')"
	fi
	if [ -z "$reason" ]; then
		reason=$(grep -E '^(error(\[[A-Z0-9]+\])?:|E:)|^(/usr/bin/)?ld: |: (fatal )?error:|: ?ERROR:|^make.*\*\*\*' "$1" | head -n1 | sed 's/^[ \t]*//')
	fi
	reason=${reason:-$(tail -n1 "$1")}
	printf '%s' "${reason#setup: }"
}

# follow NAME TITLE LOG: say now and then how far a step is, until killed: in place on a terminal, else each minute.
follow() {
	local begin=$SECONDS said
	while sleep 2 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		if [ -t 1 ]; then
			printf '\r  %-44s %6d s, %s ' "$2" $((SECONDS - begin)) "$("$1_progress" "$3")"
		elif [ $(((SECONDS - begin) / 60)) -gt "${said:-0}" ]; then
			said=$(((SECONDS - begin) / 60))
			printf '\n    %d min, %s' "$said" "$("$1_progress" "$3")"
		fi
	done
}

# step NAME TITLE: run a step unless it is up to date.
step() {
	local name=$1 title=$2 want have="" result present=yes begin code=0
	local log=$logs/$name.log stamp=$stamps/$name follower=
	# What lands in the checkout is stamped there: a cache may serve several checkouts.
	[[ $name != module* ]] || stamp=$top/build/.stamp-$name
	want=$("${name}_inputs" | sha256sum | cut -c1-32)
	[ -e "$stamp" ] && have=$(<"$stamp")
	for result in $("${name}_result"); do
		[ -e "$result" ] || present=no
	done
	if [ "$want" = "$have" ] && [ $present = yes ]; then
		[ -n "${OCHRE_QUIET:-}" ] || printf '  %-44s up to date\n' "$title"
		return
	fi
	begin=$(date +%s.%N)
	printf '  %-44s ' "$title"
	# A step killed half way must not look done.
	rm -f "$stamp"
	: >"$log"
	if declare -F "${name}_progress" >/dev/null; then
		# It holds no lock: a follower that outlives a killed set-up stops nobody.
		follow "$name" "$title" "$log" 9>&- &
		follower=$!
		trap 'kill $follower 2>/dev/null || true' EXIT
	fi
	# The subshell keeps `set -e` inside the function.
	set +e
	(
		set -eu
		hash=$want
		"${name}_build"
	) >"$log" 2>&1
	code=$?
	set -e
	if [ -n "$follower" ]; then
		kill $follower 2>/dev/null || true
		wait $follower 2>/dev/null || true
		trap - EXIT
		if [ -t 1 ]; then printf '\r\033[K'; else printf '\n'; fi
		printf '  %-44s ' "$title"
	fi
	if [ $code -ne 0 ]; then
		printf 'failed\n'
		if [ $code -gt 128 ]; then
			die "$title: interrupted"
		fi
		die "$title: $(explain "$log") [log: $log]"
	fi
	echo "$want" >"$stamp.new"
	mv "$stamp.new" "$stamp"
	awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%6.1f s\n", b - a }'
}
