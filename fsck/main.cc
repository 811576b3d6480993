// SPDX-License-Identifier: Apache-2.0
//
// fsck.sluicefs: the command line, the questions, and what is said. Exit codes of fsck(8).
#include <getopt.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "block/file_device.h"
#include "block/image_lock.h"
#include "format/debug_string.h"
#include "format/journal_device.h"
#include "fsck/check.h"
#include "fsck/progress.h"
#include "journal/external_log.h"

namespace sluice {
namespace {

enum ExitCode : int {
  kExitClean = 0,
  kExitCorrected = 1,
  kExitUncorrected = 4,
  kExitOperational = 8,
  kExitUsage = 16,
  kExitCancelled = 32,
};

constexpr char kUsage[] =
    "Usage: fsck.sluicefs [-n | -p | -y] [-f] [-v] [-C FD] [-j PATH] [--json] IMAGE\n"
    "\n"
    "Checks a sluicefs filesystem in an image file or on a block device.\n"
    "\n"
    "  -n         write nothing; the journal is replayed in memory\n"
    "  -p, -a     repair what is safe without questions\n"
    "  -y         repair everything that can be repaired without questions\n"
    "  -f         check even if the filesystem is marked clean\n"
    "  -v         say more, and count\n"
    "  -C FD      write the progress to file descriptor FD; 0: show it on the terminal\n"
    "  -j PATH    where the external journal is, if not where mkfs.sluicefs was told\n"
    "  --json     print the result as JSON\n"
    "  -h, --help, -V, --version\n"
    "\n"
    "Exit status: 0 no errors, 1 corrected, 4 left uncorrected, 8 cannot check, 16 usage,\n"
    "32 cancelled.\n";

constexpr int kJson = 256;  // the long option without a letter

enum class Mode { kAsk, kReadOnly, kPreen, kYes };

struct Arguments {
  Mode mode = Mode::kAsk;
  bool force = false;
  bool verbose = false;
  bool json = false;
  int progress_fd = -1;
  std::string image;
  std::string journal_path;
};

volatile sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

int Complain(int code, const std::string& text) {
  std::fprintf(stderr, "fsck.sluicefs: %s\n", text.c_str());
  return code;
}

// Nothing: go on; else the exit code.
std::optional<int> SetMode(Mode mode, Arguments* arguments) {
  if (arguments->mode != Mode::kAsk && arguments->mode != mode) {
    return Complain(kExitUsage, "only one of -n, -p and -y may be given");
  }
  arguments->mode = mode;
  return std::nullopt;
}

std::optional<int> TakeOption(int option, Arguments* arguments) {
  switch (option) {
    case 'n':
      return SetMode(Mode::kReadOnly, arguments);
    case 'p':
    case 'a':
      return SetMode(Mode::kPreen, arguments);
    case 'y':
      return SetMode(Mode::kYes, arguments);
    case 'f':
      arguments->force = true;
      return std::nullopt;
    case 'v':
      arguments->verbose = true;
      return std::nullopt;
    case kJson:
      arguments->json = true;
      return std::nullopt;
    case 'j':
      arguments->journal_path = optarg;
      return std::nullopt;
    case 'C':
      if (absl::SimpleAtoi(optarg, &arguments->progress_fd)) return std::nullopt;
      return Complain(kExitUsage, absl::StrCat("-C takes a file descriptor, not '", optarg, "'"));
    case 'h':
      std::fputs(kUsage, stdout);
      return kExitClean;
    case 'V':
      std::puts("fsck.sluicefs " SLUICEFS_VERSION);
      return kExitClean;
    default:
      std::fputs(kUsage, stderr);
      return kExitUsage;
  }
}

std::optional<int> ReadArguments(int argc, char** argv, Arguments* arguments) {
  static constexpr option kLong[] = {{"json", no_argument, nullptr, kJson},
                                     {"help", no_argument, nullptr, 'h'},
                                     {"version", no_argument, nullptr, 'V'},
                                     {nullptr, 0, nullptr, 0}};
  int option = 0;
  while ((option = ::getopt_long(argc, argv, "anpyfvC:j:hV", kLong, nullptr)) != -1) {
    const std::optional<int> code = TakeOption(option, arguments);
    if (code) return code;
  }
  if (optind + 1 != argc) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  arguments->image = argv[optind];
  return std::nullopt;
}

class Program {
 public:
  explicit Program(Arguments arguments)
      : arguments_(std::move(arguments)), progress_(arguments_.progress_fd, arguments_.image) {}

  int Run();

 private:
  bool writable() const { return arguments_.mode != Mode::kReadOnly; }
  int Fail(int code, const std::string& text) {
    progress_.Clear();
    return Complain(code, absl::StrCat(arguments_.image, ": ", text));
  }
  int Fail(Error error, const std::string& message);
  std::optional<int> Open();
  std::optional<int> OpenJournal();
  std::optional<int> SkipIfClean();
  std::optional<int> PreenByReplay();
  void PrintClean(const ImageSummary& summary, const char* how);
  CheckOptions Options();
  int CheckOnly();
  int CheckForRepair();
  bool Ask(const Finding& finding);
  void PrintFinding(const Finding& finding);
  void PrintNotKept(const CheckReport& report);
  void PrintReplay(const ReplayReport& replay);
  void PrintStats(const CheckReport& report);
  void PrintSummary(const CheckReport& report, int code);
  void PrintJson(const CheckReport& before, const CheckReport& after, int code);
  int Conclude(const RepairOutcome& outcome);

  const Arguments arguments_;
  Progress progress_;
  ImageLock lock_;
  ImageLock journal_lock_;
  // Of an image with an external journal.
  std::unique_ptr<Device> image_;
  std::unique_ptr<Device> journal_;
  std::unique_ptr<Device> device_;  // what is checked
  std::optional<bool> answer_to_all_;
};

int Program::Fail(Error error, const std::string& message) {
  if (error == Error::kInterrupted) return Fail(kExitCancelled, "interrupted");
  const std::string text(ErrorText(error));
  return Fail(kExitOperational, message.empty() ? text : message);
}

std::optional<int> Program::Open() {
  struct stat status;
  if (::stat(arguments_.image.c_str(), &status) != 0) {
    return Fail(kExitOperational, std::strerror(errno));
  }
  std::string why;
  std::optional<ImageLock> lock = ImageLock::Acquire(
      arguments_.image, writable() ? ImageLockMode::kExclusive : ImageLockMode::kShared, &why);
  if (!lock) return Complain(kExitOperational, why);
  lock_ = *std::move(lock);
  Result<std::unique_ptr<Device>> device =
      OpenFileDevice(arguments_.image, {.read_only = !writable()});
  if (!device.ok()) return Fail(device.error(), "");
  device_ = *std::move(device);
  return OpenJournal();
}

std::optional<int> Program::OpenJournal() {
  std::string message;
  const Result<format::Superblock> super = FindSuperblock(device_.get(), &message);
  // What is wrong with it is the check's to say.
  if (!super.ok() || !format::HasExternalJournal(super->fixed)) return std::nullopt;
  std::string path = arguments_.journal_path;
  if (path.empty()) path = format::ExternalJournalPath(super->fixed);
  if (path.empty()) return Fail(kExitOperational, "where its journal is, is not recorded; use -j");
  std::string why;
  std::optional<ImageLock> lock = ImageLock::Acquire(
      path, writable() ? ImageLockMode::kExclusive : ImageLockMode::kShared, &why);
  if (!lock) return Fail(kExitOperational, "its external journal cannot be opened: " + why);
  journal_lock_ = *std::move(lock);
  Result<std::unique_ptr<Device>> journal = OpenFileDevice(path, {.read_only = !writable()});
  if (!journal.ok()) {
    return Fail(journal.error(), absl::StrCat(path, ": ", std::string(ErrorText(journal.error()))));
  }
  journal_ = *std::move(journal);
  Result<std::unique_ptr<Device>> joined =
      JoinExternalLog(device_.get(), journal_.get(), *super, &why);
  if (!joined.ok()) {
    return Fail(kExitOperational, absl::StrCat("its external journal: ", path, " ", why));
  }
  image_ = std::exchange(device_, *std::move(joined));
  return std::nullopt;
}

void Program::PrintClean(const ImageSummary& summary, const char* how) {
  if (arguments_.json) {
    const nlohmann::json json = {{"image", arguments_.image},
                                 {"checked", false},
                                 {"clean", true},
                                 {"exit", kExitClean},
                                 {"used_inodes", summary.used_inodes},
                                 {"used_blocks", summary.used_blocks}};
    std::puts(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return;
  }
  const format::SuperSector0& fixed = summary.super.fixed;
  std::printf("%s: %s, %ju/%ju files, %ju/%ju blocks\n", arguments_.image.c_str(), how,
              static_cast<uintmax_t>(summary.used_inodes),
              static_cast<uintmax_t>(uint64_t{fixed.inode_count}),
              static_cast<uintmax_t>(summary.used_blocks),
              static_cast<uintmax_t>(uint64_t{fixed.block_count}));
}

// A clean filesystem is not looked through at every boot.
std::optional<int> Program::SkipIfClean() {
  if (arguments_.force) return std::nullopt;
  ImageSummary summary;
  const Error error = SummarizeImage(device_.get(), &summary);
  if (error != Error::kOk) return Fail(error, summary.message);
  if (summary.reason.empty()) {
    PrintClean(summary, "clean");
    return kExitClean;
  }
  if (summary.only_replay && arguments_.mode == Mode::kPreen) return PreenByReplay();
  if (!arguments_.json) {
    std::printf("%s: %s, check forced\n", arguments_.image.c_str(), summary.reason.c_str());
  }
  return std::nullopt;
}

// The journal keeps the metadata whole over a crash: its replay is all that a boot needs. Orphans
// are the next mount's.
std::optional<int> Program::PreenByReplay() {
  ReplayReport replay;
  std::string problem;
  const Error error = ReplayOnly(device_.get(), Clock::System()->WallTime(), &replay, &problem);
  // The full check says what is wrong with it.
  if (error == Error::kCorrupt) return std::nullopt;
  if (error != Error::kOk) return Fail(error, problem);
  PrintReplay(replay);
  ImageSummary summary;
  const Error again = SummarizeImage(device_.get(), &summary);
  if (again != Error::kOk) return Fail(again, summary.message);
  if (!summary.reason.empty()) return std::nullopt;
  PrintClean(summary, "clean");
  return kExitClean;
}

CheckOptions Program::Options() {
  CheckOptions options;
  options.find_paths = true;
  options.cancelled = [] { return interrupted != 0; };
  options.progress = [this](CheckPass pass, uint64_t done, uint64_t total) {
    progress_.Update(pass, done, total);
  };
  return options;
}

void Program::PrintFinding(const Finding& finding) {
  if (arguments_.json) return;
  progress_.Clear();
  const char* path_before = finding.path.empty() ? "" : " [";
  const char* path_after = finding.path.empty() ? "" : "]";
  std::printf("%s%s%s%s%s\n", InfoOf(finding.id).severity == Severity::kNote ? "note: " : "",
              Describe(finding).c_str(), path_before,
              format::PrintableText(finding.path.data(), finding.path.size()).c_str(), path_after);
}

void Program::PrintNotKept(const CheckReport& report) {
  const uint64_t kept = report.findings.size();
  const uint64_t all = report.errors + report.notes;
  if (arguments_.json || all <= kept) return;
  std::printf("... and %ju more\n", static_cast<uintmax_t>(all - kept));
}

void Program::PrintReplay(const ReplayReport& replay) {
  if (arguments_.json || !replay.needed) return;
  std::printf("%s: journal replayed%s: %ju transactions, %ju blocks\n", arguments_.image.c_str(),
              writable() ? "" : " in memory", static_cast<uintmax_t>(replay.transactions),
              static_cast<uintmax_t>(replay.blocks));
}

void Program::PrintStats(const CheckReport& report) {
  const CheckStats& stats = report.stats;
  const auto line = [](const char* what, uint64_t count) {
    std::printf("%14ju %s\n", static_cast<uintmax_t>(count), what);
  };
  line("inodes used", stats.inodes);
  line("directories", stats.directories);
  line("regular files", stats.files);
  line("symbolic links", stats.symlinks);
  line("special files", stats.special);
  line("names", stats.names);
  line("orphans", stats.orphans);
  line("extents", stats.extents);
  line("extent blocks", stats.extent_blocks);
  line("directory blocks", stats.directory_blocks);
  line("blocks of inodes", stats.used_blocks);
  std::printf("%s\n", format::DebugString(report.super.fixed).c_str());
  std::printf("%s\n", format::DebugString(report.super.state).c_str());
}

void Program::PrintSummary(const CheckReport& report, int code) {
  const char* image = arguments_.image.c_str();
  if (arguments_.verbose && report.complete) PrintStats(report);
  if (!report.complete) std::printf("%s: the check could not be finished\n", image);
  if ((code & kExitUncorrected) != 0) {
    const bool asked_for_all = arguments_.mode == Mode::kPreen || arguments_.mode == Mode::kYes;
    std::printf("%s: %ju error%s left%s\n", image, static_cast<uintmax_t>(report.errors),
                report.errors == 1 ? "" : "s",
                asked_for_all ? ", which this version cannot repair" : "");
    return;
  }
  const format::SuperSector0& fixed = report.super.fixed;
  std::printf("%s: %s, %ju/%ju files, %ju names\n", image,
              (code & kExitCorrected) != 0 ? "errors were corrected" : "no errors",
              static_cast<uintmax_t>(report.stats.inodes),
              static_cast<uintmax_t>(uint64_t{fixed.inode_count}),
              static_cast<uintmax_t>(report.stats.names));
}

nlohmann::json FindingsJson(const CheckReport& report) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : report.findings)
    list.push_back(nlohmann::json::parse(ToJson(finding)));
  return list;
}

void Program::PrintJson(const CheckReport& before, const CheckReport& after, int code) {
  const CheckStats& stats = after.stats;
  const nlohmann::json json = {
      {"image", arguments_.image},
      {"checked", true},
      {"complete", after.complete},
      {"clean", after.clean()},
      {"exit", code},
      {"errors", before.errors},
      {"errors_left", after.errors},
      {"notes", before.notes},
      {"findings", FindingsJson(before)},
      {"replayed_transactions", before.replay.transactions},
      {"replayed_blocks", before.replay.blocks},
      {"stats",
       {{"inodes", stats.inodes},
        {"directories", stats.directories},
        {"files", stats.files},
        {"symlinks", stats.symlinks},
        {"special", stats.special},
        {"names", stats.names},
        {"orphans", stats.orphans},
        {"extents", stats.extents},
        {"extent_blocks", stats.extent_blocks},
        {"directory_blocks", stats.directory_blocks},
        {"used_blocks", stats.used_blocks}}},
  };
  std::puts(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

int Program::CheckOnly() {
  CheckReport report;
  const Error error = CheckImage(device_.get(), Options(), &report);
  progress_.Clear();
  if (error != Error::kOk) return Fail(error, report.message);
  const int code = report.clean() ? kExitClean : kExitUncorrected;
  if (arguments_.json) {
    PrintJson(report, report, code);
    return code;
  }
  PrintReplay(report.replay);
  for (const Finding& finding : report.findings) PrintFinding(finding);
  PrintNotKept(report);
  PrintSummary(report, code);
  return code;
}

// Repairs that nobody should get at boot without having been asked.
bool LosesData(FindingId id) {
  return id == FindingId::kJournalSuperBad || id == FindingId::kJournalDamaged;
}

bool Program::Ask(const Finding& finding) {
  if (answer_to_all_) return *answer_to_all_;
  if (interrupted != 0) return false;
  if (arguments_.mode == Mode::kPreen && LosesData(finding.id)) return false;
  if (arguments_.mode != Mode::kAsk) return true;
  PrintFinding(finding);
  for (;;) {
    std::printf("Repair (y: yes, n: no, a: yes to all)? ");
    std::fflush(stdout);
    char answer[16];
    if (std::fgets(answer, sizeof(answer), stdin) == nullptr) {
      answer_to_all_ = false;
      return false;
    }
    if (answer[0] == 'a' || answer[0] == 'A') answer_to_all_ = true;
    if (answer_to_all_ || answer[0] == 'y' || answer[0] == 'Y') return true;
    if (answer[0] == 'n' || answer[0] == 'N') return false;
  }
}

int Program::CheckForRepair() {
  RepairOutcome outcome;
  const Error error = CheckAndRepair(
      device_.get(), Options(), [this](const Finding& finding) { return Ask(finding); },
      Clock::System()->WallTime(), &outcome);
  progress_.Clear();
  if (error != Error::kOk) {
    const std::string& message =
        outcome.before.message.empty() ? outcome.after.message : outcome.before.message;
    return Fail(error, message);
  }
  return Conclude(outcome);
}

int Program::Conclude(const RepairOutcome& outcome) {
  const CheckReport& after = outcome.after;
  int code = kExitClean;
  if (outcome.wrote_repairs) code |= kExitCorrected;
  if (!after.clean()) code |= kExitUncorrected;
  if (interrupted != 0) code |= kExitCancelled;
  if (arguments_.json) {
    PrintJson(outcome.before, after, code);
    return code;
  }
  PrintReplay(outcome.before.replay);
  for (const Finding& finding : outcome.before.findings) {
    PrintFinding(finding);
    if (finding.repaired) std::printf("  repaired\n");
  }
  PrintNotKept(outcome.before);
  PrintSummary(after, code);
  return code;
}

int Program::Run() {
  if (arguments_.mode == Mode::kAsk &&
      (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)) {
    return Complain(kExitOperational, "need a terminal for questions; use -n, -p or -y");
  }
  if (const std::optional<int> code = Open()) return *code;
  if (const std::optional<int> code = SkipIfClean()) return *code;
  return writable() ? CheckForRepair() : CheckOnly();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (const std::optional<int> code = ReadArguments(argc, argv, &arguments)) return *code;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  const int code = Program(std::move(arguments)).Run();
  return std::fflush(stdout) == 0 ? code : code | kExitOperational;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
