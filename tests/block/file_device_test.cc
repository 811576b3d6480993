// SPDX-License-Identifier: Apache-2.0
#include "block/file_device.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/backing_file.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

std::vector<std::byte> Filled(size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

// Direct and buffered, on the disk under $TMPDIR.
class FileDeviceTest : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Device> OpenDevice(bool read_only = false) {
    auto device =
        OpenFileDevice(image_, FileDeviceOptions{.read_only = read_only, .direct = GetParam()});
    EXPECT_TRUE(device.ok());
    return device.ok() ? std::move(*device) : nullptr;
  }

  TempDir dir_;
  const std::string image_ = dir_.File("image");
};

TEST_P(FileDeviceTest, WritesAndReadsAnyMemory) {
  ASSERT_EQ(CreateImageFile(image_, 1 << 20), Error::kOk);
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->size(), 1u << 20);
  // Memory at an odd address, and a sector in the middle of a block.
  auto bytes = Filled(4096 + 1, 5);
  EXPECT_EQ(device->Write(8192, std::span(bytes).subspan(1)), Error::kOk);
  EXPECT_EQ(device->Write(8192 + 512, Filled(512, 6)), Error::kOk);
  EXPECT_EQ(device->Flush(), Error::kOk);
  auto expected = Filled(4096, 5);
  std::fill_n(expected.begin() + 512, 512, std::byte{6});
  std::vector<std::byte> odd(4096 + 3);
  EXPECT_EQ(device->Read(8192, std::span(odd).subspan(3)), Error::kOk);
  EXPECT_EQ(std::vector(odd.begin() + 3, odd.end()), expected);
  AlignedBuffer aligned(4096);
  EXPECT_EQ(device->Read(8192, aligned.span()), Error::kOk);
  EXPECT_EQ(std::vector(aligned.span().begin(), aligned.span().end()), expected);
}

TEST_P(FileDeviceTest, GathersMorePiecesThanOneCallTakes) {
  ASSERT_EQ(CreateImageFile(image_, 4 << 20), Error::kOk);
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  std::vector<AlignedBuffer> memory;
  std::vector<std::span<const std::byte>> pieces;
  for (int i = 0; i < 2500; ++i) {
    memory.emplace_back(512);
    std::fill_n(memory.back().data(), 512, static_cast<std::byte>(i));
    pieces.push_back(memory.back().span());
  }
  ASSERT_EQ(device->WriteGather(4096, pieces), Error::kOk);
  std::vector<std::byte> back(2500 * 512);
  ASSERT_EQ(device->Read(4096, back), Error::kOk);
  for (size_t i = 0; i < 2500; ++i) {
    ASSERT_EQ(back[i * 512], static_cast<std::byte>(i)) << i;
    ASSERT_EQ(back[i * 512 + 511], static_cast<std::byte>(i)) << i;
  }
}

TEST_P(FileDeviceTest, ReadOnlyRefusesWrites) {
  ASSERT_EQ(CreateImageFile(image_, 1 << 20), Error::kOk);
  auto device = OpenDevice(true);
  ASSERT_NE(device, nullptr);
  EXPECT_TRUE(device->read_only());
  EXPECT_EQ(device->Write(0, Filled(512, 1)), Error::kReadOnly);
  EXPECT_EQ(device->Discard(0, 4096), Error::kReadOnly);
  EXPECT_EQ(device->Flush(), Error::kOk);
}

TEST_P(FileDeviceTest, DiscardMakesAHole) {
  ASSERT_EQ(CreateImageFile(image_, 1 << 20), Error::kOk);
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  ASSERT_EQ(device->Write(0, Filled(1 << 20, 1)), Error::kOk);
  ASSERT_EQ(device->Flush(), Error::kOk);
  struct stat before, after;
  ASSERT_EQ(stat(image_.c_str(), &before), 0);
  const Error error = device->Discard(65536, 524288);
  if (error == Error::kNotSupported) GTEST_SKIP() << "the host has no hole punching";
  ASSERT_EQ(error, Error::kOk);
  ASSERT_EQ(stat(image_.c_str(), &after), 0);
  EXPECT_LT(after.st_blocks, before.st_blocks);
  EXPECT_EQ(after.st_size, before.st_size);
}

TEST_P(FileDeviceTest, AFileThatShrankIsAnError) {
  ASSERT_EQ(CreateImageFile(image_, 1 << 20), Error::kOk);
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  ASSERT_EQ(CreateImageFile(image_, 65536), Error::kOk);
  std::vector<std::byte> data(4096);
  EXPECT_EQ(device->Read(131072, data), Error::kIo);
  EXPECT_EQ(device->Read(0, data), Error::kOk);
}

INSTANTIATE_TEST_SUITE_P(Modes, FileDeviceTest, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Direct") : std::string("Buffered");
});

TEST(FileDevice, OpenSaysWhatIsWrong) {
  TempDir dir;
  EXPECT_EQ(OpenFileDevice(dir.File("none"), {}).error(), Error::kNotFound);
  EXPECT_EQ(OpenFileDevice(dir.path(), {}).error(), Error::kIsDirectory);
  EXPECT_EQ(OpenFileDevice(dir.path(), {.read_only = true}).error(), Error::kIsDirectory);
  EXPECT_EQ(OpenFileDevice("/dev/null", {}).error(), Error::kInvalid);
}

TEST(FileDevice, SizeIsWholeSectors) {
  TempDir dir;
  ASSERT_EQ(CreateImageFile(dir.File("image"), 10000), Error::kOk);
  auto device = OpenFileDevice(dir.File("image"), {});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->size(), 9728u);
  std::vector<std::byte> sector(512);
  EXPECT_EQ((*device)->Read(9728 - 512, sector), Error::kOk);
}

TEST(FileDevice, CreateGrowsAndCuts) {
  TempDir dir;
  const std::string path = dir.File("image");
  ASSERT_EQ(CreateImageFile(path, 1 << 20), Error::kOk);
  ASSERT_EQ(CreateImageFile(path, 1 << 22), Error::kOk);
  EXPECT_EQ(std::filesystem::file_size(path), 1u << 22);
  ASSERT_EQ(CreateImageFile(path, 4096), Error::kOk);
  EXPECT_EQ(std::filesystem::file_size(path), 4096u);
  EXPECT_EQ(CreateImageFile(path, ~uint64_t{0}), Error::kFileTooLarge);
  EXPECT_EQ(CreateImageFile(dir.path(), 4096), Error::kIsDirectory);
}

TEST(FileDevice, PreallocateTakesTheSpace) {
  TempDir dir;
  const std::string path = dir.File("image");
  ASSERT_EQ(CreateImageFile(path, 1 << 20), Error::kOk);
  const Error error = Preallocate(path, 0, 1 << 20);
  if (error == Error::kNotSupported) GTEST_SKIP() << "the host has no fallocate";
  ASSERT_EQ(error, Error::kOk);
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 1 << 20);
  EXPECT_EQ(status.st_size, 1 << 20);
}

TEST(BackingFile, AFailedFlushIsNeverForgotten) {
  TempDir dir;
  ASSERT_EQ(CreateImageFile(dir.File("image"), 1 << 20), Error::kOk);
  auto file = BackingFile::Open(dir.File("image"), {});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Flush(), Error::kOk);
  EXPECT_EQ((*file)->FlushResult(EIO), Error::kIo);
  // The kernel would say success now: the pages that could not be written count as clean.
  EXPECT_EQ((*file)->FlushResult(0), Error::kIo);
  EXPECT_EQ((*file)->Flush(), Error::kIo);
  auto again = BackingFile::Open(dir.File("image"), {});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->Flush(), Error::kOk);
}

TEST(BackingFile, AFullHostIsNoSpace) {
  EXPECT_EQ(TransferError(ENOSPC), Error::kNoSpace);
  EXPECT_EQ(TransferError(EDQUOT), Error::kNoSpace);
  EXPECT_EQ(TransferError(EIO), Error::kIo);
  EXPECT_EQ(TransferError(EINVAL), Error::kIo);
}

}  // namespace
}  // namespace sluice
