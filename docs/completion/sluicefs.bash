# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# bash completion for sluicefs, mount.sluicefs, mkfs.sluicefs and fsck.sluicefs

# Completes the last word of a comma-separated list of mount options.
_sluicefs_mount_option() {
  local list=${cur%"${cur##*,}"} word=${cur##*,} options values
  options='ro rw relatime noatime strictatime nodiratime lazytime dev nodev suid nosuid exec noexec
    sync dirsync commit= barrier= nobarrier errors= norecovery noload data=ordered nodelalloc
    allow_other noallow_other default_permissions nodefault_permissions fuseblk= fsname= cache='
  case $word in
    barrier=*) values='barrier=0 barrier=1' ;;
    errors=*) values='errors=remount-ro errors=continue errors=panic' ;;
    fuseblk=*) values='fuseblk=auto fuseblk=on fuseblk=off' ;;
    *) values=$options ;;
  esac
  compopt -o nospace
  mapfile -t COMPREPLY < <(compgen -P "$list" -W "$values" -- "$word")
}

_sluicefs_image() {
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

_sluicefs() {
  local command=${1##*/} line=${COMP_LINE:0:COMP_POINT} cur prev before
  # By blanks alone: bash also splits at "=", which mount options are full of.
  cur=${line##*[[:space:]]}
  read -ra before <<<"${line%"$cur"}"
  prev=${before[-1]}
  case $command:$prev in
    sluicefs:-o | mount.sluicefs:-o)
      _sluicefs_mount_option
      # What readline replaces starts after the last word break.
      case $cur in *=*) COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*=}"}"}") ;; esac
      return
      ;;
    mkfs.sluicefs:-U) mapfile -t COMPREPLY < <(compgen -W random -- "$cur"); return ;;
    mkfs.sluicefs:-J) compopt -o nospace; mapfile -t COMPREPLY < <(compgen -W 'size= device=' -- "$cur"); return ;;
    mkfs.sluicefs:-[LNim] | fsck.sluicefs:-C) return ;;
  esac
  case $command:$cur in
    sluicefs:-* | mount.sluicefs:-*)
      mapfile -t COMPREPLY < <(compgen -W '-o -f -d -h -V --help --version' -- "$cur") ;;
    mkfs.sluicefs:-*)
      mapfile -t COMPREPLY < <(compgen -W '-L -U -N -i -J -m -n -F -q -V --prealloc --reproducible --json --help --version' -- "$cur") ;;
    fsck.sluicefs:-*)
      mapfile -t COMPREPLY < <(compgen -W '-n -p -a -y -f -v -C -h -V --json --help --version' -- "$cur") ;;
    *) _sluicefs_image ;;
  esac
}

complete -F _sluicefs sluicefs mount.sluicefs mkfs.sluicefs fsck.sluicefs
