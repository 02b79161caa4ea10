# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2154  # lib.sh and step() set the variables
# Step: the root file system that builds everything and that the guests boot from.

root_inputs() {
	echo "$suite $series"
	hash_files "$setup/packages.list" "$setup/root-customize.sh"
}

root_result() {
	echo "$cache/root/etc/ochre-root"
}

# The Debian mirror: OCHRE_MIRROR, or the one that this machine's own apt uses.
find_mirror() {
	if [ -n "${OCHRE_MIRROR:-}" ]; then
		echo "$OCHRE_MIRROR"
		return
	fi
	# shellcheck disable=SC2016  # apt's own substitution
	apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 2>/dev/null | sed -n 's/^Debian|//p' | sort | uniq -c |
		sort -rn | awk 'NR == 1 { print $2 }'
}

root_build() {
	local mirror new=$cache/root.new include
	need_space "$need_mib"
	mirror=$(find_mirror)
	if [ -z "$mirror" ]; then
		echo "OCHRE: no Debian mirror: apt on this machine names none; set OCHRE_MIRROR=http://.../debian"
		return 1
	fi
	include=$(sed 's/#.*//' "$setup/packages.list" | tr -s ' \n' ',' | sed 's/^,//;s/,$//')
	rm -rf --one-file-system "$new"
	mmdebstrap --variant=minbase --dpkgopt=force-unsafe-io --aptopt='APT::Install-Recommends "false"' \
		--aptopt='Acquire::Retries "3"' --include="$include" \
		--customize-hook="$setup/root-customize.sh \"\$1\" $series" "$suite" "$new" - <<-SOURCES
			deb $mirror $suite main
			deb $mirror $suite-backports main
			deb-src $mirror $suite main
		SOURCES
	test -s "$new/etc/ochre-root"
	# The old root, if any, leaves by a rename, so that there is a whole one or none at any time.
	rm -rf --one-file-system "$cache/root.old"
	[ ! -e "$cache/root" ] || mv "$cache/root" "$cache/root.old"
	mv "$new" "$cache/root"
	rm -rf --one-file-system "$cache/root.old"
}
