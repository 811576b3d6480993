// SPDX-License-Identifier: Apache-2.0
#include "block/overlay_device.h"

#include <gtest/gtest.h>

#include <vector>

#include "block/memory_device.h"
#include "tests/support/test_request.h"

namespace sluice {
namespace {

std::vector<std::byte> Filled(size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

class OverlayDeviceTest : public testing::Test {
 protected:
  OverlayDeviceTest() {
    EXPECT_EQ(base_.Write(0, Filled(65536, 1)), Error::kOk);
    base_.RefuseWrites();
    base_.set_read_only(true);
    writes_before_ = base_.count(IoOp::kWrite);
  }
  ~OverlayDeviceTest() override {
    EXPECT_EQ(base_.count(IoOp::kWrite), writes_before_);
    EXPECT_EQ(base_.count(IoOp::kFlush), 0u);
    EXPECT_EQ(base_.count(IoOp::kDiscard), 0u);
    base_.ClearFaults();
    std::vector<std::byte> data(65536);
    EXPECT_EQ(base_.Read(0, data), Error::kOk);
    EXPECT_EQ(data, Filled(65536, 1));
  }

  MemoryDevice base_{1 << 20};
  OverlayDevice overlay_{&base_};
  uint64_t writes_before_ = 0;
};

TEST_F(OverlayDeviceTest, WritesAreSeenAndNeverReachTheBase) {
  EXPECT_FALSE(overlay_.read_only());
  EXPECT_EQ(overlay_.size(), base_.size());
  ASSERT_EQ(overlay_.Write(512, Filled(1024, 2)), Error::kOk);
  ASSERT_EQ(overlay_.Write(8192, Filled(4096, 3)), Error::kOk);
  ASSERT_EQ(overlay_.Flush(), Error::kOk);
  ASSERT_EQ(overlay_.Discard(16384, 4096), Error::kOk);
  std::vector<std::byte> data(16384);
  auto expected = Filled(16384, 1);
  std::fill_n(expected.begin() + 512, 1024, std::byte{2});
  std::fill_n(expected.begin() + 8192, 4096, std::byte{3});
  ASSERT_EQ(overlay_.Read(0, data), Error::kOk);
  EXPECT_EQ(data, expected);
  EXPECT_EQ(overlay_.memory(), 8192u);
}

TEST_F(OverlayDeviceTest, SubmittedScatteredReadsArePatched) {
  ASSERT_EQ(overlay_.Write(4096 - 512, Filled(1024, 2)), Error::kOk);
  auto a = Filled(1024, 9), b = Filled(3072, 9), c = Filled(4096, 9);
  TestRequest request(IoOp::kRead, 0, a);
  request.buffers = {a, b, c};
  request.length = 8192;
  overlay_.Submit(request.AsSpan());
  ASSERT_EQ(request.Wait(), Error::kOk);
  EXPECT_EQ(request.times_done(), 1);
  EXPECT_EQ(a, Filled(1024, 1));
  auto tail = Filled(3072, 1);
  std::fill_n(tail.begin() + 2560, 512, std::byte{2});
  EXPECT_EQ(b, tail);
  auto head = Filled(4096, 1);
  std::fill_n(head.begin(), 512, std::byte{2});
  EXPECT_EQ(c, head);
}

TEST_F(OverlayDeviceTest, ErrorsOfTheBaseAndOfTheCallerComeThrough) {
  base_.FailRange(IoOp::kRead, 4096, 512);
  std::vector<std::byte> data(4096);
  EXPECT_EQ(overlay_.Read(4096, data), Error::kIo);
  TestRequest request(IoOp::kRead, 4096, data);
  overlay_.Submit(request.AsSpan());
  EXPECT_EQ(request.Wait(), Error::kIo);
  EXPECT_EQ(overlay_.Write(1 << 20, data), Error::kInvalid);
  EXPECT_EQ(overlay_.Write(1, data), Error::kInvalid);
}

}  // namespace
}  // namespace sluice
