// SPDX-License-Identifier: Apache-2.0
#include "mkfs/existing.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <libmount/libmount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/aligned_buffer.h"
#include "block/file_device.h"
#include "block/image_lock.h"
#include "format/debug_string.h"
#include "format/journal_device.h"
#include "format/superblock.h"

namespace sluice {

namespace {

struct FreeProbe {
  void operator()(blkid_probe probe) const { blkid_free_probe(probe); }
};
using Probe = std::unique_ptr<blkid_struct_probe, FreeProbe>;

struct FreeTable {
  void operator()(libmnt_table* table) const { mnt_unref_table(table); }
};
struct FreeIterator {
  void operator()(libmnt_iter* iterator) const { mnt_free_iter(iterator); }
};

class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// "a" or "an" before a name.
std::string WithArticle(const std::string& name) {
  const bool vowel = !name.empty() && std::string("aeioAEIO").find(name[0]) != std::string::npos;
  return absl::StrCat(vowel ? "an " : "a ", name);
}

std::string DescribeOwn(const std::string& path) {
  Result<std::unique_ptr<Device>> device = OpenFileDevice(path, {.read_only = true});
  if (!device.ok() || (*device)->size() < kBlockSize) return "";
  AlignedBuffer block(kBlockSize);
  if ((*device)->Read(0, block.span()) != Error::kOk) return "";
  format::JournalDeviceSuper journal;
  std::memcpy(&journal, block.data(), sizeof(journal));
  if (format::CheckJournalDevice(journal) == Error::kOk) return "a sluicefs journal device";
  format::Superblock super;
  const Error error =
      format::ParseSuperblock(format::ConstBlockSpan(block.data(), kBlockSize), &super, nullptr);
  if (error == Error::kUnknownFormat) return "";
  std::string text = "a sluicefs filesystem";
  if (error == Error::kOk && super.fixed.label[0] != 0) {
    absl::StrAppend(&text, " labelled ",
                    format::PrintableText(super.fixed.label, sizeof(super.fixed.label)));
  }
  return text;
}

std::string DescribeForeign(const std::string& path) {
  const Probe probe(blkid_new_probe_from_filename(path.c_str()));
  if (probe == nullptr) return "";
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_TYPE);
  blkid_probe_enable_partitions(probe.get(), 1);
  if (blkid_do_fullprobe(probe.get()) < 0) return "";
  const char* value = nullptr;
  if (blkid_probe_lookup_value(probe.get(), "TYPE", &value, nullptr) == 0) {
    return absl::StrCat(WithArticle(value), " filesystem");
  }
  if (blkid_probe_lookup_value(probe.get(), "PTTYPE", &value, nullptr) == 0) {
    return absl::StrCat(WithArticle(value), " partition table");
  }
  return "";
}

bool SameThing(const std::string& source, const std::string& path, const struct stat& status) {
  if (CanonicalPath(source) == path) return true;
  struct stat other;
  if (::stat(source.c_str(), &other) != 0) return false;
  if (S_ISBLK(status.st_mode) && S_ISBLK(other.st_mode) && status.st_rdev == other.st_rdev) {
    return true;
  }
  return S_ISBLK(other.st_mode) && absl::StartsWith(source, "/dev/loop") &&
         CanonicalPath(ResolveBackingFile(source)) == path;
}

std::string MountedOn(const std::string& path, const struct stat& status) {
  const std::unique_ptr<libmnt_table, FreeTable> table(
      mnt_new_table_from_file("/proc/self/mountinfo"));
  const std::unique_ptr<libmnt_iter, FreeIterator> iterator(mnt_new_iter(MNT_ITER_FORWARD));
  if (table == nullptr || iterator == nullptr) return "";
  libmnt_fs* fs = nullptr;
  while (mnt_table_next_fs(table.get(), iterator.get(), &fs) == 0) {
    const char* source = mnt_fs_get_source(fs);
    if (source == nullptr || source[0] != '/') continue;
    if (SameThing(source, path, status)) return mnt_fs_get_target(fs);
  }
  return "";
}

}  // namespace

std::string CanonicalPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::canonical(path, error);
  return error ? path : canonical.string();
}

std::string DescribeContents(const std::string& path) {
  const std::string own = DescribeOwn(path);
  return own.empty() ? DescribeForeign(path) : own;
}

std::string DescribeUse(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return "";
  const std::string target = MountedOn(CanonicalPath(path), status);
  if (!target.empty()) return absl::StrCat("mounted on ", target);
  if (!S_ISBLK(status.st_mode)) return "";
  // The kernel refuses O_EXCL while a filesystem, swap, RAID or the like holds the device.
  const ScopedFd plain(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ScopedFd exclusive(::open(path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
  return plain.get() >= 0 && exclusive.get() < 0 ? "in use by the system" : "";
}

bool EraseSignatures(const std::string& path) {
  const ScopedFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const Probe probe(blkid_new_probe());
  if (fd.get() < 0 || probe == nullptr) return false;
  if (blkid_probe_set_device(probe.get(), fd.get(), 0, 0) != 0) return false;
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE);
  blkid_probe_enable_partitions(probe.get(), 1);
  blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_MAGIC);
  while (blkid_do_probe(probe.get()) == 0) {
    if (blkid_do_wipe(probe.get(), 0) != 0) return false;
  }
  return true;
}

}  // namespace sluice
