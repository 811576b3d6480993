#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A short life of a filesystem on a real mount: make it, use most operations from several
# processes, unmount, mount again and compare, check. Meant for builds with a sanitizer, whose
# reports (also those of the daemon, which has no terminal) end up in a file and fail the test.
#
# Usage: tests/mount_smoke.sh BUILD_DIR
# Exit status: 0 passed, 77 skipped, else failed. Leaves nothing mounted.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

fail() {
  echo "mount_smoke: $*"
  exit 1
}

trouble=$(fuse_trouble)
if [ -n "$trouble" ]; then
  echo "skipped: $trouble"
  exit 77
fi

build=$(realpath "$1")
make_scratch smoke
use_programs_of "$build"
mnt=$SCRATCH/mnt
image=$SCRATCH/image
mkdir "$mnt"

reports="log_path=$SCRATCH/sanitizer"
export ASAN_OPTIONS="$reports:detect_stack_use_after_return=1"
export UBSAN_OPTIONS="$reports:print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="$reports:suppressions=$SOURCE_DIR/tests/support/tsan.supp"

no_reports() {
  local report
  for report in "$SCRATCH"/sanitizer*; do
    [ -e "$report" ] || continue
    head -n 100 "$report"
    fail "the sanitizer reported something after: $1"
  done
}

make_files() {
  local dir=$1 i
  mkdir -p "$dir/sub"
  for i in $(seq 40); do
    head -c $((i * 613)) /dev/urandom >"$dir/file$i"
    ln "$dir/file$i" "$dir/sub/link$i"
  done
  sync "$dir/file1"
  for i in $(seq 1 2 39); do mv "$dir/file$i" "$dir/renamed$i"; done
  for i in $(seq 2 4 40); do rm "$dir/file$i"; done
  ln -s ../target "$dir/symlink"
  truncate -s 1000 "$dir/renamed39"
  truncate -s 50M "$dir/sparse"
  echo end >>"$dir/sparse"
  dd if=/dev/urandom of="$dir/big" bs=64k count=24 conv=fsync status=none
  dd if=/dev/zero of="$dir/big" bs=4k seek=5 count=3 conv=notrunc status=none
  chmod 640 "$dir/big"
  mkfifo "$dir/fifo"
}

# Everything a reader can see, one line per entry.
listing() {
  (cd "$1" && find . -printf '%p %y %m %s %n %l\n' | sort &&
    find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

round() {
  local jobs=() dir
  timeout 60 sluicefs "$image" "$mnt" -o "$1" || fail "mount -o $1 failed"
  for dir in one two three; do
    make_files "$mnt/$dir.$2" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || fail "a writer failed"; done
  timeout 60 cp -a "$SOURCE_DIR/scripts" "$mnt/copy.$2"
  diff -r "$SOURCE_DIR/scripts" "$mnt/copy.$2" || fail "the copy differs"
  rm -r "$mnt/two.$2"
  sync "$mnt"
  listing "$mnt" >"$SCRATCH/before"
  unmount "$mnt" || fail "unmount failed"
  no_reports "mount -o $1"

  timeout 60 sluicefs "$image" "$mnt" -o "ro,$1" || fail "the second mount failed"
  listing "$mnt" >"$SCRATCH/after"
  unmount "$mnt" || fail "the second unmount failed"
  diff "$SCRATCH/before" "$SCRATCH/after" || fail "the tree changed over a remount"
  timeout 120 fsck.sluicefs -fn "$image" || fail "fsck exited with $?"
  no_reports "fsck"
}

timeout 60 mkfs.sluicefs -q "$image" 256M || fail "mkfs failed"
no_reports mkfs
round fuseblk=off 1
if [ "$(id -u)" -eq 0 ] && [ -e /dev/loop-control ]; then
  round fuseblk=on 2
fi
echo passed
