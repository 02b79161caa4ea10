#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Run a command inside the root file system that builds everything and that the guests boot from.
#
#   scripts/enter.sh COMMAND [ARGUMENT...]
#
# A private mount namespace is made, /proc, /sys, /dev, /tmp, the checkout and the cache are bound into
# the root at the paths they have outside, and the command is started with chroot. The mounts vanish with
# the command. The working directory is kept where the root has it. OCHRE_BIND names further absolute
# paths (separated by colons) to bind, for instance a kernel tree.
set -eu

if [ $# -eq 0 ]; then
	echo "usage: scripts/enter.sh COMMAND [ARGUMENT...]" >&2
	exit 2
fi

# Already inside: nothing to enter.
if [ -e /etc/ochre-root ]; then
	exec "$@"
fi

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=${OCHRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ochre}
root=${OCHRE_ROOT:-$cache/root}
if [ ! -e "$root/etc/ochre-root" ]; then
	echo "enter: there is no root file system at $root; run 'make setup' first" >&2
	exit 1
fi
cache=$(cd "$cache" && pwd -P)
root=$(cd "$root" && pwd -P)

# The environment inside: a sane base, and what the user set for the tools that fetch or build.
vars=(
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	"HOME=$cache/home" "USER=root" "LOGNAME=root" "LANG=C.UTF-8" "SHELL=/bin/bash"
	"OCHRE_CACHE=$cache" "OCHRE_TOP=$top"
	"CARGO_HOME=$cache/cargo" "CARGO_TARGET_DIR=${OCHRE_TARGET_DIR:-$cache/target}"
)
while IFS='=' read -r name _; do
	case $name in
	OCHRE_CACHE | OCHRE_ROOT | OCHRE_TOP | CARGO_HOME | CARGO_TARGET_DIR | CARGO_MANIFEST_* | CARGO_PKG_*) ;;
	TERM | COLORTERM | NO_COLOR | CI | TMUX | V | KDIR | KERNEL | CLIPPY | MAKEFLAGS | MAKELEVEL | \
		http_proxy | https_proxy | ftp_proxy | all_proxy | no_proxy | \
		HTTP_PROXY | HTTPS_PROXY | FTP_PROXY | ALL_PROXY | NO_PROXY | \
		OCHRE_* | CARGO_* | RUST_LOG | RUST_BACKTRACE | RUSTFLAGS | PROPTEST_* | PIP_*)
		vars+=("$name=${!name-}") ;;
	esac
done < <(compgen -e | sed 's/$/=/')

# The host's certificate bundle, for machines behind a proxy with an authority of its own.
bundle=
for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
	if [ -n "$file" ] && [ -s "$file" ]; then
		bundle=$(readlink -f "$file")
		vars+=("SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
			"CARGO_HTTP_CAINFO=/etc/ssl/certs/ca-certificates.crt"
			"PIP_CERT=/etc/ssl/certs/ca-certificates.crt")
		break
	fi
done

binds=("$top" "$cache")
IFS=: read -r -a extra <<<"${OCHRE_BIND:-}"
binds+=("${extra[@]}")

unshare=(unshare --mount --propagation private)
if [ "$(id -u)" -ne 0 ]; then
	unshare+=(--user --map-root-user)
	unshare --user --map-root-user --map-auto true 2>/dev/null && unshare+=(--map-auto)
fi

# Runs in the new namespace: $1 root, $2 bundle, $3 cargo configuration, $4 directory,
# then the paths to bind up to "--", then the environment up to "--", then the command.
# shellcheck disable=SC2016  # expanded by the inner shell
inner='
set -eu
root=$1 bundle=$2 config=$3 dir=$4
shift 4
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --rbind /tmp "$root/tmp"
if [ -e /etc/resolv.conf ]; then
	mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
fi
[ -z "$bundle" ] || mount --bind "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
while [ "$1" != -- ]; do
	if [ -n "$1" ]; then
		[ -d "$root$1" ] || mkdir -p "$root$1"
		mount --bind "$1" "$root$1"
	fi
	shift
done
shift
if [ -n "$config" ]; then
	mkdir -p "$root$OCHRE_ENTER_CARGO"
	[ -e "$root$OCHRE_ENTER_CARGO/config.toml" ] || : > "$root$OCHRE_ENTER_CARGO/config.toml"
	mount --bind "$config" "$root$OCHRE_ENTER_CARGO/config.toml"
fi
[ -d "$root$dir" ] || dir=/
exec chroot "$root" /usr/bin/env -i -C "$dir" "$@"
'
config=
for file in "${CARGO_HOME:-$HOME/.cargo}/config.toml" "${CARGO_HOME:-$HOME/.cargo}/config"; do
	if [ -s "$file" ]; then
		config=$(readlink -f "$file")
		break
	fi
done

OCHRE_ENTER_CARGO=$cache/cargo exec "${unshare[@]}" -- \
	/bin/sh -c "$inner" enter "$root" "$bundle" "$config" "$(pwd -P)" "${binds[@]}" -- "${vars[@]}" "$@"
