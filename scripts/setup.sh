#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Make or bring up to date everything that Ochre needs: root file system, kernel tree, QEMU, headers,
# programs, module, provider.
#
#   scripts/setup.sh [STEP...]
#
# Steps: root kernel headers qemu workspace module, and kerneldebug moduledebug, which only a call that names
# them makes; each brings the steps that it needs. OCHRE_CACHE says
# where the results go (default: ochre in the user's cache directory), OCHRE_MIRROR which Debian mirror to use,
# OCHRE_QUIET=1 leaves out the steps that are up to date.
# shellcheck source-path=SCRIPTDIR
set -eu

# shellcheck source=setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup/lib.sh"
# shellcheck source=setup/root.sh
. "$setup/root.sh"
# shellcheck source=setup/trees.sh
. "$setup/trees.sh"
# shellcheck source=setup/builds.sh
. "$setup/builds.sh"

# What the host itself must have.
check_host() {
	local tool missing=()
	[ "$(uname -m)" = x86_64 ] || die "the host is $(uname -m); Ochre's guests are x86_64 and are built natively"
	[ "$(uname -s)" = Linux ] || die "the host runs $(uname -s); Linux is needed"
	for tool in mmdebstrap unshare flock apt-get; do
		command -v "$tool" >/dev/null || missing+=("$tool")
	done
	if [ "${missing[*]}" = mmdebstrap ] && [ "$(id -u)" -eq 0 ]; then
		echo "  installing mmdebstrap"
		if ! { apt-get update -q && apt-get install -qy --no-install-recommends mmdebstrap; } >"$logs/host.log" 2>&1; then
			die "cannot install mmdebstrap: $(explain "$logs/host.log") [log: $logs/host.log]"
		fi
	elif [ ${#missing[@]} -gt 0 ]; then
		die "this machine lacks: ${missing[*]} (on Debian: apt-get install mmdebstrap util-linux)"
	fi
	unshare --mount ${UNSHARE_USER:+"$UNSHARE_USER"} true 2>/dev/null ||
		die "no right to make a mount namespace: run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
}

UNSHARE_USER=
[ "$(id -u)" -eq 0 ] || UNSHARE_USER=--map-root-user

mkdir -p "$cache" 2>/dev/null || die "cannot make $cache: no right to write there (set OCHRE_CACHE)"
cache=$(cd "$cache" && pwd -P)
[ -w "$cache" ] || die "no right to write to $cache (set OCHRE_CACHE)"
export OCHRE_CACHE=$cache
mkdir -p "$cache/stamps" "$cache/logs" "$cache/home" "$cache/cargo" "$cache/downloads" "$top/build"
stamps=$cache/stamps
logs=$cache/logs

# One set-up at a time in a cache.
exec 9>"$cache/.lock"
if ! flock -n 9; then
	echo "  waiting for another set-up that uses $cache" >&2
	flock 9
fi

[ $# -gt 0 ] || set -- workspace qemu module
wanted=" $* "
for name in "$@"; do
	case $name in
	root) ;;
	kernel | headers) wanted+="root " ;;
	qemu) wanted+="root qemusource " ;;
	workspace) wanted+="root headers " ;;
	module) wanted+="root kernel " ;;
	kerneldebug) wanted+="root " ;;
	moduledebug) wanted+="root kerneldebug " ;;
	*) die "there is no step '$name'; steps are: root kernel headers qemu workspace module kerneldebug moduledebug" ;;
	esac
done
trap 'printf "\n"; die interrupted' INT TERM

want() { [ "${wanted#* "$1" }" != "$wanted" ]; }
[ -e "$cache/root/etc/ochre-root" ] || check_host
want root && step root "root file system (Debian $suite)"
want kernel && step kernel "kernel tree ($series, with Rust metadata)"
want headers && step headers "rdma-core's private headers"
want qemusource && step qemusource "QEMU source"
want workspace && step workspace "programs and provider"
want qemu && step qemu "QEMU with the ochre-hca device"
want module && step module "kernel module"
want kerneldebug && step kerneldebug "debug kernel ($series: KASAN, lockdep, kmemleak)"
want moduledebug && step moduledebug "kernel module for the debug kernel"
exit 0
