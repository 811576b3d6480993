// SPDX-License-Identifier: Apache-2.0
//
// sluicefs, mount.sluicefs, umount.sluicefs and their fuse. and fuseblk. forms: one program, told
// apart by its name.
#include <malloc.h>

#include <cstdio>
#include <string>

#include "base/mutex.h"
#include "fs/fuse/command_line.h"
#include "fs/fuse/daemon.h"
#include "fs/fuse/umount_helper.h"

namespace {

int Usage(const char* program, const std::string& why) {
  std::fprintf(stderr, "%s: %s\nTry '%s -h'.\n", program, why.c_str(), program);
  return sluice::kExitUsage;
}

int Umount(int argc, char** argv) {
  sluice::UmountCommand command;
  std::string why;
  if (!sluice::ParseUmountCommand(argc, argv, &command, &why)) return Usage(argv[0], why);
  return sluice::RunUmount(command);
}

int Mount(int argc, char** argv) {
  sluice::MountCommand command;
  std::string why;
  if (!sluice::ParseMountCommand(argc, argv, &command, &why)) return Usage(argv[0], why);
  if (command.show_help) {
    std::fputs(sluice::MountUsage().c_str(), stdout);
    return sluice::kExitSuccess;
  }
  if (command.show_version) {
    std::puts("sluicefs " SLUICEFS_VERSION);
    return sluice::kExitSuccess;
  }
  return sluice::RunMount(command);
}

// The allocator's arenas grow by a page at a time and shrink as eagerly, with a system call each;
// metadata buffers come and go all the time.
void TuneAllocator() {
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 1) return sluice::kExitUsage;
  sluice::TurnOffDeadlockDetector();
  TuneAllocator();
  return sluice::RoleOf(argv[0]) == sluice::Role::kUmountHelper ? Umount(argc, argv)
                                                                : Mount(argc, argv);
}
