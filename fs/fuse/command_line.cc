// SPDX-License-Identifier: Apache-2.0
//
// See command_line.h. getopt_long, since mount(8) puts options before and after the operands.
#include "fs/fuse/command_line.h"

#include <getopt.h>

#include <vector>

namespace sluice {
namespace {

constexpr option kLongOptions[] = {
    {"help", no_argument, nullptr, 'h'},
    {"version", no_argument, nullptr, 'V'},
    {"options", required_argument, nullptr, 'o'},
    {nullptr, 0, nullptr, 0},
};

// The option letters that mount(8) and umount(8) may pass to helpers; -f differs by role.
constexpr char kMountLetters[] = ":o:t:N:fdsvnrwVh";
constexpr char kUmountLetters[] = ":t:N:flnrvVh";

struct Words {
  std::vector<std::string> operands;
  std::string option_lists;  // all -o joined
  bool sloppy = false;
};

std::string BadLetter(int result, char** argv) {
  if (result == ':') return std::string("option -") + static_cast<char>(optopt) + " needs a value";
  if (optopt != 0) return std::string("unknown option -") + static_cast<char>(optopt);
  return std::string("unknown option ") + argv[optind - 1];
}

bool ReadMountLetters(int argc, char** argv, MountCommand* command, Words* words,
                      std::string* why) {
  const bool helper = RoleOf(argv[0]) == Role::kMountHelper;
  opterr = 0;
  optind = 0;  // starts over, also in tests that parse twice
  for (int letter;
       (letter = getopt_long(argc, argv, kMountLetters, kLongOptions, nullptr)) != -1;) {
    switch (letter) {
      case 'o':
        words->option_lists += "," + std::string(optarg);
        break;
      case 'r':
        words->option_lists += ",ro";
        break;
      case 'w':
        words->option_lists += ",rw";
        break;
      case 'f':
        (helper ? command->fake : command->foreground) = true;
        break;
      case 'd':
        command->debug = command->foreground = true;
        break;
      case 's':
        words->sloppy = true;
        break;
      case 'v':
        command->verbose = true;
        break;
      case 't':
      case 'N':
      case 'n':
        break;
      case 'V':
        command->show_version = true;
        break;
      case 'h':
        command->show_help = true;
        break;
      default:
        *why = BadLetter(letter, argv);
        return false;
    }
  }
  words->operands.assign(argv + optind, argv + argc);
  return true;
}

}  // namespace

Role RoleOf(const std::string& program_path) {
  const std::string name = program_path.substr(program_path.rfind('/') + 1);
  if (name.rfind("umount.", 0) == 0) return Role::kUmountHelper;
  if (name.rfind("mount.", 0) == 0) return Role::kMountHelper;
  return Role::kProgram;
}

bool ParseMountCommand(int argc, char** argv, MountCommand* command, std::string* why) {
  Words words;
  if (!ReadMountLetters(argc, argv, command, &words, why)) return false;
  if (command->show_help || command->show_version) return true;
  const UnknownOption unknown = words.sloppy ? UnknownOption::kIgnore : UnknownOption::kRefuse;
  if (!ParseMountOptions(words.option_lists, unknown, &command->options, why)) return false;
  if (words.operands.size() != 2) {
    *why = words.operands.size() < 2 ? "needs an image and a mountpoint"
                                     : "too many operands: '" + words.operands[2] + "'";
    return false;
  }
  if (!command->options.recover_journal && !command->options.read_only) {
    *why = "norecovery needs ro: a journal that was not replayed must not be written to";
    return false;
  }
  command->image = words.operands[0];
  command->mountpoint = words.operands[1];
  return true;
}

bool ParseUmountCommand(int argc, char** argv, UmountCommand* command, std::string* why) {
  opterr = 0;
  optind = 0;
  for (int letter; (letter = getopt(argc, argv, kUmountLetters)) != -1;) {
    switch (letter) {
      case 'f':
        command->force = true;
        break;
      case 'l':
        command->lazy = true;
        break;
      case 'r':
        command->read_only_fallback = true;
        break;
      case 'v':
        command->verbose = true;
        break;
      case 't':
      case 'N':
      case 'n':
        break;
      default:
        *why = BadLetter(letter, argv);
        return false;
    }
  }
  if (argc - optind != 1) {
    *why = "needs one mountpoint";
    return false;
  }
  command->target = argv[optind];
  return true;
}

std::string MountUsage() {
  return "usage: sluicefs IMAGE MOUNTPOINT [-o OPTION[,OPTION...]] [-f] [-d]\n"
         "\n"
         "Mounts the sluicefs filesystem in IMAGE (a file or a block device) at MOUNTPOINT.\n"
         "\n"
         "  -o LIST   mount options, see below\n"
         "  -f        stay in the foreground; exit 0 after a clean unmount\n"
         "  -d        as -f, and print every request\n"
         "  -V        print the version\n"
         "  -h        print this text\n"
         "\n"
         "Options after -o:\n" +
         MountOptionsHelp();
}

}  // namespace sluice
