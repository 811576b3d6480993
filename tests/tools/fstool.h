// SPDX-License-Identifier: Apache-2.0
// The commands of fstool, the helper program of the shell suite (tests/suite). It knows nothing of
// sluicefs: it only makes system calls on a mounted filesystem and judges what comes back.
#ifndef TESTS_TOOLS_FSTOOL_H_
#define TESTS_TOOLS_FSTOOL_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace fstool {

using Args = std::vector<std::string>;

// Each command gets the words after its name and returns the exit status: 0 passed, 1 the
// filesystem misbehaved (a line on stderr says how), 2 wrong use.
int RunOps(const Args& args);
int RunPattern(const Args& args);
int RunAppend(const Args& args);
int RunMmap(const Args& args);
int RunDirect(const Args& args);
int RunMakeFiles(const Args& args);
int RunCheckFiles(const Args& args);
int RunRemoveFiles(const Args& args);
int RunDirScan(const Args& args);
int RunSyncWriter(const Args& args);
int RunSyncVerify(const Args& args);
int RunFsx(const Args& args);
int RunStress(const Args& args);
int RunShutdown(const Args& args);
int RunFreeze(const Args& args);
int RunThaw(const Args& args);
int RunHold(const Args& args);

// "ENOENT" for ENOENT, "0" for 0; stable across C libraries.
std::string ErrnoName(int error);

// Prints "fstool: " and the message to stderr. Returns 1, so that a command can `return Fail(...)`.
[[gnu::format(printf, 1, 2)]] int Fail(const char* format, ...);

// A decimal, 0x or 0 number with an optional suffix k, m, g or t (powers of 1024). Ends the program
// with status 2 if it is not one.
int64_t ParseNumber(const std::string& text);

// The byte at `offset` of the endless pseudo-random stream `seed`; never zero, so that a lost
// block cannot pass for written data.
char PatternByte(uint64_t seed, uint64_t offset);
void FillPattern(uint64_t seed, uint64_t offset, char* out, size_t size);

// Small deterministic generator (SplitMix64): the same seed gives the same run everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Uniform in [0, limit); limit > 0.
  uint64_t Below(uint64_t limit) { return Next() % limit; }

 private:
  uint64_t state_;
};

// pread/pwrite of the whole range. Return false with errno set; a short read sets errno to 0.
bool WriteAll(int fd, const char* data, size_t size, off_t offset);
bool ReadAll(int fd, char* data, size_t size, off_t offset);

}  // namespace fstool

#endif  // TESTS_TOOLS_FSTOOL_H_
