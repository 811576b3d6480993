#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What mkfs.sluicefs says, refuses and leaves behind. No mounts of sluicefs, no root needed (one
# part, a full host, wants root).
set -u
. "$(dirname "$0")/../../scripts/lib.sh"
make_scratch mkfs-test
cd "$SCRATCH" || exit 1
mkfs=$(command -v mkfs.sluicefs) || { echo "mkfs.sluicefs is not built"; exit 77; }
failed=0

# expect STATUS PATTERN COMMAND...: exit status, and a line of output (either stream) that matches.
expect() {
  local status=$1 pattern=$2 rc=0 said
  shift 2
  said=$("$@" 2>&1 </dev/null) || rc=$?
  [ "$rc" -eq "$status" ] || { echo "$*: exits $rc, not $status: $said"; failed=1; }
  grep -qE -- "$pattern" <<<"$said" || { echo "$*: says '$said', not '$pattern'"; failed=1; }
}

absent() {
  [ ! -e "$1" ] || { echo "$1 was left behind"; failed=1; rm -f "$1"; }
}

expect 0 'smallest filesystem is 16 MiB, the smallest journal 4 MiB' "$mkfs" -h
expect 0 '^mkfs.sluicefs [0-9.]+$' "$mkfs" -V
expect 0 '^a: 64 MiB, 16384 blocks' "$mkfs" -L data a 64m
[ "$(stat -c %s a)" -eq $((64 << 20)) ] || { echo "a has another size"; failed=1; }
expect 1 'contains a sluicefs filesystem labelled data; use -F' "$mkfs" a
expect 0 'label "again"' "$mkfs" -F -L again a
expect 0 '^$' "$mkfs" -q -F a

# Sizes
expect 0 '16 MiB, 4096 blocks' "$mkfs" smallest 16m
expect 0 'journal of 4 MiB' "$mkfs" -F smallest
expect 1 'at least 16 MiB' "$mkfs" tiny 16383
absent tiny
expect 0 '16 MiB' "$mkfs" kib 16384
expect 1 'at least 16 MiB' "$mkfs" tiny 0
expect 1 "bad size 'banana'" "$mkfs" tiny banana
expect 1 "bad size '-5'" "$mkfs" tiny -5
expect 1 'give a size' "$mkfs" missing
expect 1 'is a directory' "$mkfs" . 64m
expect 1 'neither a regular file nor a block device' "$mkfs" -F /dev/null 64m
expect 1 'at least 4 MiB' "$mkfs" -J size=3 tiny 64m
expect 0 'journal of 8 MiB' "$mkfs" -J size=8 journal 64m
expect 0 'journal of 6 MiB' "$mkfs" -F -J size=6144k journal 64m
expect 1 '-J takes size=' "$mkfs" -J 8 tiny 64m
expect 1 'bad UUID' "$mkfs" -U nonsense tiny 64m
expect 1 'too many inodes' "$mkfs" -N 99999999 tiny 64m
expect 1 'longer than 64 bytes' "$mkfs" -L "$(printf '%65s' x)" tiny 64m
expect 1 'percent' "$mkfs" -m 60 tiny 64m
expect 1 'IMAGE' "$mkfs"
for name in tiny missing; do absent "$name"; done
expect 0 'UUID 01234567-89ab-cdef-0123-456789abcdef' \
  "$mkfs" -U 01234567-89ab-cdef-0123-456789abcdef uuid 64m

# -n writes nothing
before=$(sha256sum <a)
expect 0 'would become' "$mkfs" -n -F a
[ "$(sha256sum <a)" = "$before" ] || { echo "-n wrote"; failed=1; }
expect 0 '"written": false' "$mkfs" -n --json nowhere 1g
absent nowhere

# Foreign contents are named, kept without -F, and their marks are gone afterwards.
if command -v mkfs.ext4 >/dev/null; then
  truncate -s 64m foreign
  mkfs.ext4 -q -F foreign
  before=$(sha256sum <foreign)
  expect 1 'contains an ext4 filesystem' "$mkfs" foreign
  expect 1 'contains an ext4 filesystem' "$mkfs" foreign 32m
  [ "$(sha256sum <foreign)" = "$before" ] || { echo "a refused image was changed"; failed=1; }
  expect 0 '64 MiB' "$mkfs" -F foreign
  [ -z "$(blkid -p -s TYPE -o value foreign)" ] || { echo "still looks like ext4"; failed=1; }
fi

# Who holds the image is told, and refused also with -F.
flock --no-fork -x a sleep 60 &
holder=$!
until ! flock -n -x a true; do :; done
expect 1 'in use by process [0-9]+' "$mkfs" -F -F a
kill "$holder"
wait "$holder" 2>/dev/null

# The same wishes make the same image; others do not.
"$mkfs" -q --reproducible one 32m && "$mkfs" -q --reproducible two 32m && cmp one two || failed=1
"$mkfs" -q -F two && ! cmp -s one two || { echo "random images are equal"; failed=1; }

# A full host: a clear message, nothing left behind.
if [ "$(id -u)" -eq 0 ] && mkdir host && mount -t tmpfs -o size=8m tmpfs host 2>/dev/null; then
  expect 1 'no space left on the filesystem that holds it' "$mkfs" -J size=16 host/image 64m
  absent host/image
  expect 1 'no space left' "$mkfs" --prealloc host/image 16m
  absent host/image
  expect 0 '64 MiB' "$mkfs" host/image 64m
fi

[ "$(stat -c %b one)" -lt $((8 << 11)) ] || { echo "an image of 32 MiB is not sparse"; failed=1; }
"$mkfs" -q --prealloc full 32m
[ "$(stat -c %b full)" -ge $((32 << 11)) ] || { echo "--prealloc left holes"; failed=1; }
exit $failed
