# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by scripts/demo and scripts/test: the build, bounded commands, and a scratch directory
# that takes its mounts and loop devices with it, whatever happens.
#
# Only what lies under the scratch directory of this very run is ever unmounted or detached.

SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SCRATCH=
CHILD=

# Makes $SCRATCH and arms the traps. Programs started later put their temporary files there too.
make_scratch() {
  # Not /tmp: that is memory on many machines.
  SCRATCH=$(mktemp -d "${TMPDIR:-/var/tmp}/sluicefs-$1.XXXXXX")
  SCRATCH=$(realpath "$SCRATCH")
  chmod 711 "$SCRATCH"  # some tests become a plain user, who must get through
  export TMPDIR=$SCRATCH TEST_TMPDIR=$SCRATCH
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

# Mount points under $SCRATCH, the innermost first. (mktemp gives no name that mountinfo escapes.)
scratch_mounts() {
  awk -v top="$SCRATCH/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | sort -r
}

# Prints why nothing can be mounted here, or nothing. fusermount3 opens /dev/fuse for others than
# root, so its mode says little.
fuse_trouble() {
  if [ ! -e /dev/fuse ]; then
    echo "/dev/fuse is missing: load the module (modprobe fuse), or start the container with --device /dev/fuse"
  elif [ "$(id -u)" -eq 0 ] && ! : 2>/dev/null <>/dev/fuse; then
    echo "/dev/fuse cannot be opened: this container may not use the device"
  elif [ "$(id -u)" -ne 0 ] && [ ! -u "$(command -v fusermount3)" ]; then
    echo "fusermount3 is not there or not set-uid root: only root can mount"
  fi
}

unmount() {
  if [ "$(id -u)" -eq 0 ]; then umount "$1"; else fusermount3 -u "$1"; fi
}

# A mount that is busy or dead still has to go.
unmount_lazily() {
  if [ "$(id -u)" -eq 0 ]; then umount -l "$1"; else fusermount3 -u -z "$1"; fi
}

# Every process started since make_scratch has its TMPDIR (or one below it), daemons included. The
# grep may find itself: whoever signals these expects some to be gone.
scratch_processes() {
  grep -lz "^TMPDIR=$SCRATCH" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}

clean_up() {
  local status=$?
  # One thing that cannot be cleaned up must not keep the others.
  set +e
  trap - EXIT
  trap '' INT TERM HUP
  if [ -n "$CHILD" ]; then
    kill -TERM "$CHILD" 2>/dev/null && wait "$CHILD" 2>/dev/null
  fi
  local mount loop file pid
  for mount in $(scratch_mounts); do unmount "$mount" 2>/dev/null; done
  for mount in $(scratch_mounts); do
    unmount_lazily "$mount" || echo "cannot unmount $mount" >&2
  done
  for pid in $(scratch_processes); do kill -TERM "$pid" 2>/dev/null; done
  wait_for_processes 3
  for pid in $(scratch_processes); do kill -KILL "$pid" 2>/dev/null; done
  if [ "$(id -u)" -eq 0 ] && [ -e /dev/loop-control ]; then
    while read -r loop file; do
      case $file in "$SCRATCH"/*) losetup -d "$loop" ;; esac
    done < <(losetup -l -n -O NAME,BACK-FILE 2>/dev/null)
  fi
  rm -rf --one-file-system "$SCRATCH"
  exit $status
}

processes_left() {
  local pid
  for pid in $(scratch_processes); do [ -e "/proc/$pid" ] && return 0; done
  return 1
}

wait_for_processes() {
  local end=$((SECONDS + $1))
  while [ $SECONDS -lt $end ] && processes_left; do sleep 0.1; done
}

# bounded SECONDS COMMAND...: runs the command in a process group of its own, so that ^C reaches
# the trap at once and a hang ends. Exit status as timeout(1).
bounded() {
  local seconds=$1 status=0
  shift
  timeout --kill-after=10 "$seconds" "$@" &
  CHILD=$!
  wait "$CHILD" || status=$?
  CHILD=
  return $status
}

# configure DIR [meson options]: sets up a build directory, or updates one that is there.
# CXX chooses the compiler of a new one.
configure() {
  local dir=$1
  shift
  if [ -f "$dir/build.ninja" ]; then
    [ $# -eq 0 ] || bounded 120 meson configure "$dir" "$@"
  else
    bounded 120 meson setup "$dir" "$SOURCE_DIR" "$@"
  fi
}

# Puts the programs built in DIR first in PATH.
use_programs_of() {
  export PATH="$1/fs/fuse:$1/mkfs:$1/fsck:$PATH"
}
