// SPDX-License-Identifier: Apache-2.0
#include "block/uring_device.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/file_device.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_request.h"

namespace sluice {
namespace {

constexpr uint64_t kSize = 16 << 20;

struct Mode {
  const char* name;
  bool ring, direct;
};

std::vector<std::byte> Filled(size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

class UringDeviceTest : public testing::TestWithParam<Mode> {
 protected:
  UringDeviceTest() { EXPECT_EQ(CreateImageFile(image_, kSize), Error::kOk); }

  std::unique_ptr<UringDevice> OpenDevice(unsigned depth = 128, bool read_only = false) {
    auto device = OpenUringDevice(image_, {.read_only = read_only,
                                           .queue_depth = depth,
                                           .direct = GetParam().direct,
                                           .use_ring = GetParam().ring});
    EXPECT_TRUE(device.ok());
    return device.ok() ? std::move(*device) : nullptr;
  }

  TempDir dir_;
  const std::string image_ = dir_.File("image");
};

// A run of requests, each with its own memory, submitted at once.
class Batch {
 public:
  void Add(IoOp op, uint64_t offset, int value, size_t size = 4096) {
    memory_.emplace_back(size);
    std::fill_n(memory_.back().data(), size, static_cast<std::byte>(value));
    requests_.push_back(std::make_unique<TestRequest>(op, offset, memory_.back().span()));
    pointers_.push_back(requests_.back().get());
  }
  void Run(Device* device) {
    device->Submit(pointers_);
    for (auto& request : requests_) {
      EXPECT_EQ(request->Wait(), Error::kOk);
      EXPECT_EQ(request->times_done(), 1);
    }
  }
  const AlignedBuffer& memory(size_t i) const { return memory_[i]; }

 private:
  std::vector<AlignedBuffer> memory_;
  std::vector<std::unique_ptr<TestRequest>> requests_;
  std::vector<IoRequest*> pointers_;
};

TEST_P(UringDeviceTest, ManyMoreRequestsThanTheRingHolds) {
  auto device = OpenDevice(8);
  ASSERT_NE(device, nullptr);
  Batch writes;
  for (int i = 0; i < 1000; ++i) writes.Add(IoOp::kWrite, static_cast<uint64_t>(i) * 4096, i % 251);
  writes.Run(device.get());
  EXPECT_EQ(device->Flush(), Error::kOk);
  Batch reads;
  for (int i = 0; i < 1000; ++i) reads.Add(IoOp::kRead, static_cast<uint64_t>(i) * 4096, 255);
  reads.Run(device.get());
  for (size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(reads.memory(i).data()[0], static_cast<std::byte>(i % 251));
    ASSERT_EQ(reads.memory(i).data()[4095], static_cast<std::byte>(i % 251));
  }
  const UringDevice::Stats stats = device->stats();
  EXPECT_EQ(stats.in_flight, 0u);
  EXPECT_LE(stats.max_in_flight, 8u);
  EXPECT_EQ(stats.writes, 1000u);
  EXPECT_EQ(stats.reads, 1000u);
  EXPECT_EQ(stats.flushes, 1u);
  EXPECT_EQ(stats.bytes_written, 4096000u);
  EXPECT_EQ(stats.bytes_read, 4096000u);
}

TEST_P(UringDeviceTest, ScatteredUnalignedAndSectorRequests) {
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  auto odd = Filled(8192 + 1, 3);
  TestRequest write(IoOp::kWrite, 4096, std::span(odd).subspan(1));
  device->Submit(write.AsSpan());
  ASSERT_EQ(write.Wait(), Error::kOk);
  auto sector = Filled(512, 4);
  TestRequest small(IoOp::kWrite, 4096 + 1024, sector);
  device->Submit(small.AsSpan());
  ASSERT_EQ(small.Wait(), Error::kOk);
  TestRequest flush(IoOp::kFlush);
  device->Submit(flush.AsSpan());
  ASSERT_EQ(flush.Wait(), Error::kOk);

  auto a = Filled(1024, 0), b = Filled(512 + 7, 0), c = Filled(6656, 0);
  TestRequest read(IoOp::kRead, 4096, a);
  read.buffers = {a, std::span(b).subspan(7), c};
  read.length = 8192;
  device->Submit(read.AsSpan());
  ASSERT_EQ(read.Wait(), Error::kOk);
  EXPECT_EQ(a, Filled(1024, 3));
  EXPECT_EQ(std::vector(b.begin() + 7, b.end()), Filled(512, 4));
  EXPECT_EQ(c, Filled(6656, 3));
}

TEST_P(UringDeviceTest, GathersMorePiecesThanOneCallTakes) {
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  AlignedBuffer memory(2500 * 512);
  for (size_t i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<std::byte>(i / 512);
  TestRequest write(IoOp::kWrite, 8192, memory.span());
  write.buffers.clear();
  for (size_t i = 0; i < 2500; ++i) write.buffers.push_back(memory.span().subspan(i * 512, 512));
  device->Submit(write.AsSpan());
  ASSERT_EQ(write.Wait(), Error::kOk);
  AlignedBuffer back(2500 * 512);
  ASSERT_EQ(device->Read(8192, back.span()), Error::kOk);
  EXPECT_TRUE(std::equal(memory.span().begin(), memory.span().end(), back.span().begin()));
}

TEST_P(UringDeviceTest, BadRequestsAreRefusedGoodOnesOfTheSameBatchServed) {
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  auto data = Filled(4096, 1);
  TestRequest bad(IoOp::kWrite, kSize, data), odd(IoOp::kRead, 5, data),
      good(IoOp::kWrite, 0, data);
  TestRequest empty(IoOp::kRead, 0);
  IoRequest* const all[] = {&bad, &odd, &good, &empty};
  device->Submit(all);
  EXPECT_EQ(bad.Wait(), Error::kInvalid);
  EXPECT_EQ(odd.Wait(), Error::kInvalid);
  EXPECT_EQ(good.Wait(), Error::kOk);
  EXPECT_EQ(empty.Wait(), Error::kOk);
  EXPECT_EQ(device->Read(5, data), Error::kInvalid);
  EXPECT_EQ(device->Write(kSize, data), Error::kInvalid);
}

TEST_P(UringDeviceTest, ReadOnly) {
  auto device = OpenDevice(128, true);
  ASSERT_NE(device, nullptr);
  auto data = Filled(4096, 1);
  EXPECT_EQ(device->Write(0, data), Error::kReadOnly);
  TestRequest write(IoOp::kWrite, 0, data), read(IoOp::kRead, 0, data), flush(IoOp::kFlush);
  IoRequest* const all[] = {&write, &read, &flush};
  device->Submit(all);
  EXPECT_EQ(write.Wait(), Error::kReadOnly);
  EXPECT_EQ(read.Wait(), Error::kOk);
  EXPECT_EQ(flush.Wait(), Error::kOk);
  EXPECT_EQ(data, Filled(4096, 0));
}

TEST_P(UringDeviceTest, DiscardedRangesAreGoneAndTheRestIsThere) {
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  ASSERT_EQ(device->Write(0, Filled(1 << 20, 1)), Error::kOk);
  TestRequest discard(IoOp::kDiscard, 4096);
  discard.length = 65536;
  device->Submit(discard.AsSpan());
  const Error error = discard.Wait();
  if (error == Error::kNotSupported) GTEST_SKIP() << "the host has no hole punching";
  ASSERT_EQ(error, Error::kOk);
  auto data = Filled(4096, 9);
  ASSERT_EQ(device->Read(0, data), Error::kOk);
  EXPECT_EQ(data, Filled(4096, 1));
  ASSERT_EQ(device->Read(4096, data), Error::kOk);
  EXPECT_EQ(data, Filled(4096, 0));
  ASSERT_EQ(device->Read(4096 + 65536, data), Error::kOk);
  EXPECT_EQ(data, Filled(4096, 1));
}

TEST_P(UringDeviceTest, ShortTransfersAtTheEndOfAShrunkenFileAreErrors) {
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  ASSERT_EQ(CreateImageFile(image_, 8192), Error::kOk);
  auto data = Filled(16384, 1);
  TestRequest read(IoOp::kRead, 0, data);
  device->Submit(read.AsSpan());
  EXPECT_EQ(read.Wait(), Error::kIo);
}

TEST_P(UringDeviceTest, SixteenInFlightUnderParallelLoad) {
  auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&device, t] {
      for (int round = 0; round < 8; ++round) {
        Batch batch;
        for (int i = 0; i < 32; ++i) {
          batch.Add(IoOp::kWrite,
                    (static_cast<uint64_t>(t) * 32 + static_cast<uint64_t>(i)) * 65536, round,
                    65536);
        }
        batch.Run(device.get());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  // A ring has what was submitted in flight. A thread counts what it works on itself, and when all
  // of it goes to the page cache there may never be many threads at it at once.
  if (device->uses_ring()) {
    EXPECT_GE(device->stats().max_in_flight, 16u);
  }
  EXPECT_EQ(device->stats().in_flight, 0u);
}

// Each Done submits the next request from the device's own thread.
TEST_P(UringDeviceTest, DoneMaySubmitAndDelete) {
  struct Chain final : IoRequest {
    void Done(Error error) override {
      EXPECT_EQ(error, Error::kOk);
      if (--left > 0) {
        offset += 4096;
        IoRequest* const self = this;
        device->Submit({&self, 1});
        return;
      }
      TestRequest* const tell = last;
      delete this;
      tell->Done(Error::kOk);
    }
    Device* device;
    TestRequest* last;
    int left = 200;
  };
  auto device = OpenDevice(4);
  ASSERT_NE(device, nullptr);
  AlignedBuffer memory(4096);
  std::fill_n(memory.data(), 4096, std::byte{1});
  TestRequest last[8] = {TestRequest(IoOp::kFlush), TestRequest(IoOp::kFlush),
                         TestRequest(IoOp::kFlush), TestRequest(IoOp::kFlush),
                         TestRequest(IoOp::kFlush), TestRequest(IoOp::kFlush),
                         TestRequest(IoOp::kFlush), TestRequest(IoOp::kFlush)};
  for (uint64_t i = 0; i < 8; ++i) {
    auto* const chain = new Chain;
    chain->op = IoOp::kWrite;
    chain->offset = i * 200 * 4096;
    chain->length = 4096;
    chain->buffers = {memory.span()};
    chain->device = device.get();
    chain->last = &last[i];
    IoRequest* const first = chain;
    device->Submit({&first, 1});
  }
  for (TestRequest& request : last) EXPECT_EQ(request.Wait(), Error::kOk);
  EXPECT_EQ(device->stats().writes, 1600u);
}

TEST_P(UringDeviceTest, TheEndWaitsForWhatIsInFlight) {
  AlignedBuffer memory(1 << 20);
  std::fill_n(memory.data(), memory.size(), std::byte{6});
  TestRequest write(IoOp::kWrite, 0, memory.span());
  {
    auto device = OpenDevice();
    ASSERT_NE(device, nullptr);
    device->Submit(write.AsSpan());
  }
  EXPECT_TRUE(write.done());
}

INSTANTIATE_TEST_SUITE_P(Modes, UringDeviceTest,
                         testing::Values(Mode{"RingDirect", true, true},
                                         Mode{"RingBuffered", true, false},
                                         Mode{"ThreadsDirect", false, true},
                                         Mode{"ThreadsBuffered", false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(UringDevice, UsesARingWhereThereIsOne) {
  TempDir dir;
  ASSERT_EQ(CreateImageFile(dir.File("image"), kSize), Error::kOk);
  auto device = OpenUringDevice(dir.File("image"), {});
  ASSERT_TRUE(device.ok());
  if (!(*device)->uses_ring()) GTEST_SKIP() << "no io_uring on this machine";
}

TEST(UringDevice, AHostWithoutDirectIoIsUsedBuffered) {
  // tmpfs refused O_DIRECT before Linux 6.6; both answers must work.
  TempDir dir("/dev/shm");
  ASSERT_EQ(CreateImageFile(dir.File("image"), kSize), Error::kOk);
  auto device = OpenUringDevice(dir.File("image"), {});
  ASSERT_TRUE(device.ok());
  ASSERT_EQ((*device)->Write(512, Filled(1024, 5)), Error::kOk);
  ASSERT_EQ((*device)->Flush(), Error::kOk);
  auto data = Filled(1024, 0);
  ASSERT_EQ((*device)->Read(512, data), Error::kOk);
  EXPECT_EQ(data, Filled(1024, 5));
}

TEST(UringDevice, AFailedFlushSticksForSubmittedFlushesToo) {
  TempDir dir;
  ASSERT_EQ(CreateImageFile(dir.File("image"), kSize), Error::kOk);
  auto file = BackingFile::Open(dir.File("image"), {});
  ASSERT_TRUE(file.ok());
  BackingFile* const raw = file->get();
  UringDevice device(std::move(*file), {});
  EXPECT_EQ(device.Flush(), Error::kOk);
  EXPECT_EQ(raw->FlushResult(EIO), Error::kIo);
  EXPECT_EQ(device.Flush(), Error::kIo);
  TestRequest flush(IoOp::kFlush);
  device.Submit(flush.AsSpan());
  EXPECT_EQ(flush.Wait(), Error::kIo);
}

TEST(UringDevice, OpenSaysWhatIsWrong) {
  TempDir dir;
  EXPECT_EQ(OpenUringDevice(dir.File("none"), {}).error(), Error::kNotFound);
  EXPECT_EQ(OpenUringDevice(dir.path(), {}).error(), Error::kIsDirectory);
}

}  // namespace
}  // namespace sluice
