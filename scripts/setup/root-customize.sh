#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# mmdebstrap's customize hook: the kernel of one series, and what the guests' boot needs.
#
#   root-customize.sh ROOT SERIES
set -eu
root=$1
series=$2
export APT_CONFIG=${MMDEBSTRAP_APT_CONFIG:-}

# The newest image of the series, without the metapackage: its initramfs tools are of no use here.
pattern="^linux-binary-${series//./\\.}(\\.[0-9]+)?(-rc[0-9]+)?\\+deb[0-9]+-amd64\$"
release=$(apt-cache pkgnames "linux-binary-$series" | grep -E "$pattern" | sort -V | tail -n1)
release=${release#linux-binary-}
if [ -z "$release" ]; then
	echo "OCHRE: the mirror has no kernel of the $series series" >&2
	exit 1
fi
apt-get install -y --no-install-recommends -o DPkg::Chroot-Directory="$root" \
	"linux-binary-$release" "linux-modules-$release" "linux-base-$release" \
	"linux-headers-$release" "linux-source-$series"

mkdir -p "$root/boot"
for name in vmlinuz config System.map; do
	ln -sf "../usr/lib/modules/$release/$name" "$root/boot/$name-$release"
done

# udev's cold plug is most of a guest's boot time and nothing here needs it. The stand-in makes the links
# that virtme-ng's console and command channels are opened by.
udevd=/usr/lib/systemd/systemd-udevd
chroot "$root" dpkg-divert --quiet --local --rename --divert "$udevd.distrib" --add "$udevd"
cat >"$root$udevd" <<'UDEVD'
#!/bin/sh
# Stand-in for systemd-udevd in Ochre's guests: link the virtio ports by name, and be done.
mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	[ -e "$port/name" ] && ln -sf "../${port##*/}" "/dev/virtio-ports/$(cat "$port/name")"
done
exit 0
UDEVD
chmod 755 "$root$udevd"

# Mount points and files that enter.sh binds over.
: >"$root/etc/resolv.conf"
mkdir -p "$root/etc/ssl/certs"
[ -e "$root/etc/ssl/certs/ca-certificates.crt" ] || : >"$root/etc/ssl/certs/ca-certificates.crt"
echo ochre >"$root/etc/hostname"

# What the results of later steps depend on.
# shellcheck disable=SC2016  # dpkg-query's own substitution
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' \
	gcc libc6-dev rustc bindgen libclang-dev libglib2.0-dev libibverbs-dev >"$root/etc/ochre-tools"
echo "$release" >"$root/etc/ochre-root"
