// SPDX-License-Identifier: Apache-2.0
#include "block/memory_device.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "block/device.h"
#include "tests/support/test_request.h"

namespace sluice {
namespace {

std::vector<std::byte> Filled(size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

std::byte ByteAt(Device* device, uint64_t offset) {
  std::vector<std::byte> sector(kSectorSize);
  EXPECT_EQ(device->Read(offset - offset % kSectorSize, sector), Error::kOk);
  return sector[offset % kSectorSize];
}

TEST(MemoryDevice, UnwrittenBytesArePoison) {
  MemoryDevice device(1 << 20);
  std::vector<std::byte> data(8192);
  ASSERT_EQ(device.Read(4096, data), Error::kOk);
  EXPECT_EQ(data, Filled(8192, static_cast<int>(kPoisonByte)));
  EXPECT_NE(kPoisonByte, std::byte{0});
}

TEST(MemoryDevice, ReadsBackSectorsAndGatheredWrites) {
  MemoryDevice device(1 << 20);
  ASSERT_EQ(device.Write(512, Filled(512, 1)), Error::kOk);
  const auto a = Filled(1024, 2), b = Filled(4096, 3);
  const std::span<const std::byte> pieces[] = {a, b};
  ASSERT_EQ(device.WriteGather(3584, pieces), Error::kOk);
  EXPECT_EQ(ByteAt(&device, 511), kPoisonByte);
  EXPECT_EQ(ByteAt(&device, 512), std::byte{1});
  EXPECT_EQ(ByteAt(&device, 1024), kPoisonByte);
  EXPECT_EQ(ByteAt(&device, 3584), std::byte{2});
  EXPECT_EQ(ByteAt(&device, 4607), std::byte{2});
  EXPECT_EQ(ByteAt(&device, 4608), std::byte{3});
  EXPECT_EQ(ByteAt(&device, 8703), std::byte{3});
  EXPECT_EQ(ByteAt(&device, 8704), kPoisonByte);
}

TEST(MemoryDevice, DiscardedBytesAreNotZero) {
  MemoryDevice device(1 << 20);
  ASSERT_EQ(device.Write(0, Filled(8192, 1)), Error::kOk);
  ASSERT_EQ(device.Discard(512, 4096 + 512), Error::kOk);
  EXPECT_EQ(ByteAt(&device, 511), std::byte{1});
  EXPECT_EQ(ByteAt(&device, 512), kPoisonByte);
  EXPECT_EQ(ByteAt(&device, 5119), kPoisonByte);
  EXPECT_EQ(ByteAt(&device, 5120), std::byte{1});
}

TEST(MemoryDevice, RefusesMalformedRequests) {
  MemoryDevice device(8192);
  auto data = Filled(512, 0);
  EXPECT_EQ(device.Read(1, data), Error::kInvalid);
  EXPECT_EQ(device.Read(8192, data), Error::kInvalid);
  EXPECT_EQ(device.Read(~uint64_t{511}, data), Error::kInvalid);
  EXPECT_EQ(device.Write(0, std::span(data).first(100)), Error::kInvalid);
  TestRequest request(IoOp::kRead, 0, data);
  request.length = 1024;
  device.Submit(request.AsSpan());
  EXPECT_EQ(request.Wait(), Error::kInvalid);
  device.set_read_only(true);
  EXPECT_EQ(device.Write(0, data), Error::kReadOnly);
  EXPECT_EQ(device.Discard(0, 512), Error::kReadOnly);
  EXPECT_EQ(device.Read(0, data), Error::kOk);
}

TEST(MemoryDevice, FaultsHitWhatTheyShould) {
  MemoryDevice device(1 << 20);
  auto data = Filled(4096, 7);
  device.FailNth(IoOp::kWrite, 2, Error::kNoSpace);
  EXPECT_EQ(device.Write(0, data), Error::kOk);
  EXPECT_EQ(device.Write(4096, data), Error::kNoSpace);
  EXPECT_EQ(ByteAt(&device, 4096), kPoisonByte);
  EXPECT_EQ(device.Write(4096, data), Error::kOk);

  device.FailRange(IoOp::kRead, 8192, 4096);
  EXPECT_EQ(device.Read(4096, data), Error::kOk);
  EXPECT_EQ(device.Read(8192, data), Error::kIo);
  EXPECT_EQ(device.Read(12288, data), Error::kOk);

  device.RefuseWrites();
  EXPECT_EQ(device.Write(0, data), Error::kIo);
  EXPECT_EQ(device.Flush(), Error::kIo);
  EXPECT_EQ(device.count(IoOp::kWrite), 4u);
  device.ClearFaults();
  EXPECT_EQ(device.Write(0, data), Error::kOk);
  EXPECT_EQ(device.Read(8192, data), Error::kOk);
}

TEST(MemoryDevice, ClonesGoTheirOwnWays) {
  MemoryDevice device(1 << 20);
  ASSERT_EQ(device.Write(0, Filled(8192, 1)), Error::kOk);
  auto clone = device.Clone();
  ASSERT_EQ(device.Write(0, Filled(512, 2)), Error::kOk);
  ASSERT_EQ(clone->Write(512, Filled(512, 3)), Error::kOk);
  EXPECT_EQ(ByteAt(&device, 0), std::byte{2});
  EXPECT_EQ(ByteAt(&device, 512), std::byte{1});
  EXPECT_EQ(ByteAt(clone.get(), 0), std::byte{1});
  EXPECT_EQ(ByteAt(clone.get(), 512), std::byte{3});
}

TEST(MemoryDevice, ChainedSubmitsDoNotNest) {
  // Each Done submits the next request. Nested on the stack, a million of them would overflow it.
  struct Chain final : IoRequest {
    void Done(Error error) override {
      EXPECT_EQ(error, Error::kOk);
      if (--left == 0) return;
      IoRequest* const self = this;
      device->Submit({&self, 1});
    }
    MemoryDevice* device;
    int left = 1'000'000;
  };
  MemoryDevice device(8192);
  Chain chain;
  chain.op = IoOp::kFlush;
  chain.device = &device;
  IoRequest* const first = &chain;
  device.Submit({&first, 1});
  EXPECT_EQ(chain.left, 0);
}

TEST(MemoryDevice, ThreadsWriteTheirOwnBlocks) {
  MemoryDevice device(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&device, t] {
      const uint64_t base = static_cast<uint64_t>(t) * 65536;
      for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(device.Write(base + static_cast<uint64_t>(i) * 4096, Filled(4096, t + 1)),
                  Error::kOk);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (uint64_t t = 0; t < 4; ++t) {
    for (uint64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(ByteAt(&device, t * 65536 + i * 4096), static_cast<std::byte>(t + 1));
    }
  }
}

}  // namespace
}  // namespace sluice
