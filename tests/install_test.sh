#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `meson install` puts programs, mount helpers, man pages and completions where Debian expects them.
#
# Usage: tests/install_test.sh BUILD_DIR
set -euo pipefail

dest=$(mktemp -d)
trap 'rm -rf "$dest"' EXIT
meson install -C "$1" --no-rebuild --destdir "$dest" --quiet
prefix=$dest$(meson introspect "$1" --buildoptions |
  python3 -c 'import json,sys; print({o["name"]: o for o in json.load(sys.stdin)}["prefix"]["value"])')

status=0
want() {
  [ -s "$1" ] || [ -L "$1" ] || { echo "missing: ${1#"$dest"}"; status=1; }
}
for program in bin/sluicefs sbin/mkfs.sluicefs sbin/fsck.sluicefs; do
  want "$prefix/$program"
  [ -x "$prefix/$program" ] || { echo "not executable: $program"; status=1; }
done
for verb in mount umount; do
  for type in sluicefs fuse.sluicefs fuseblk.sluicefs; do
    helper=$dest/sbin/$verb.$type
    want "$helper"
    # The link's target is absolute on the installed system.
    target=$dest$(readlink "$helper")
    [ -x "$target" ] || { echo "dangling: ${helper#"$dest"} -> $(readlink "$helper")"; status=1; }
  done
done
for page in man8/mkfs.sluicefs.8 man8/fsck.sluicefs.8 man8/mount.sluicefs.8 man5/sluicefs.5; do
  want "$prefix/share/man/$page"
done
for name in sluicefs mount.sluicefs mkfs.sluicefs fsck.sluicefs; do
  want "$prefix/share/bash-completion/completions/$name"
done
exit $status
