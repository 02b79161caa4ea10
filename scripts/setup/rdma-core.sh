#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Inside the root: rdma-core's private headers (infiniband/driver.h, the kernel ABI twins, ...), which no
# package installs, from the upstream source of the version that the root has.
#
#   rdma-core.sh DOWNLOADS OUTPUT
#
# OUTPUT must not exist; it gets include/ and a file VERSION.
set -eu
downloads=$1
output=$2
have=$(dpkg-query -W -f '${source:Upstream-Version}' libibverbs1)

mkdir -p "$downloads"
cd "$downloads"
tarball=rdma-core_$have.orig.tar.gz
if [ ! -s "$tarball" ]; then
	apt-get update -q
	apt-get source -q --download-only --tar-only rdma-core
fi
if [ ! -s "$tarball" ]; then
	echo "OCHRE: the mirror's source of rdma-core is not version $have, which the root has" >&2
	exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xf "$tarball" -C "$work" --strip-components=1
mkdir "$work/build"
cd "$work/build"
cmake -GNinja -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 ..
# The C structures of the kernel ABI (kernel-abi/*.h) are generated.
ninja kern-abi
mkdir -p "$output"
# The headers are links into the source; keep what they point to.
cp -RL include "$output/include"
echo "$have" >"$output/VERSION"
test -s "$output/include/infiniband/driver.h"
test -s "$output/include/kernel-abi/ib_user_verbs.h"
