// SPDX-License-Identifier: Apache-2.0
#include "block/crash_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "block/crash_states.h"
#include "tests/support/crash_check.h"
#include "tests/support/test_request.h"

namespace sluice {
namespace {

std::vector<std::byte> Filled(size_t size, char value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

// The first byte of each of the first `count` sectors; '.' for poison.
std::string Picture(Device* device, size_t count) {
  std::vector<std::byte> data(count * kSectorSize);
  EXPECT_EQ(device->Read(0, data), Error::kOk);
  std::string picture;
  for (size_t i = 0; i < count; ++i) {
    const std::byte first = data[i * kSectorSize];
    for (size_t j = 0; j < kSectorSize; ++j) EXPECT_EQ(data[i * kSectorSize + j], first);
    picture.push_back(first == kPoisonByte ? '.' : static_cast<char>(first));
  }
  return picture;
}

std::set<std::string> AllPictures(const CrashLog& log, size_t count,
                                  const CrashOptions& options = {}) {
  std::set<std::string> pictures;
  CrashStates states(log, options);
  while (states.Next()) pictures.insert(Picture(states.Materialize().get(), count));
  return pictures;
}

class CrashDeviceTest : public testing::Test {
 protected:
  void Write(uint64_t sector, const std::string& sectors) {
    std::vector<std::byte> data;
    for (char c : sectors) {
      const auto sector_data = Filled(kSectorSize, c);
      data.insert(data.end(), sector_data.begin(), sector_data.end());
    }
    ASSERT_EQ(device_.Write(sector * kSectorSize, data), Error::kOk);
  }
  void Flush() { ASSERT_EQ(device_.Flush(), Error::kOk); }

  CrashDevice device_{1 << 20};
};

using Pictures = std::set<std::string>;

TEST_F(CrashDeviceTest, UnflushedWritesMayVanishAndReorder) {
  Write(0, "a");
  Write(1, "b");
  Write(2, "c");
  EXPECT_EQ(Picture(&device_, 3), "abc");
  EXPECT_EQ(AllPictures(device_.TakeLog(), 3),
            (Pictures{"...", "a..", ".b.", "..c", "ab.", "a.c", ".bc", "abc"}));
}

TEST_F(CrashDeviceTest, FlushedWritesNeverVanish) {
  Write(0, "a");
  Flush();
  Write(1, "b");
  EXPECT_EQ(AllPictures(device_.TakeLog(), 2), (Pictures{"..", "a.", "ab"}));
  device_.StartLog();
  EXPECT_EQ(AllPictures(device_.TakeLog(), 2), (Pictures{"ab"}));
  Write(1, "c");
  EXPECT_EQ(AllPictures(device_.TakeLog(), 2), (Pictures{"ab", "ac"}));
}

TEST_F(CrashDeviceTest, WritesAreTornAtSectors) {
  Write(0, "abc");
  EXPECT_EQ(AllPictures(device_.TakeLog(), 3),
            (Pictures{"...", "a..", ".b.", "..c", "ab.", "a.c", ".bc", "abc"}));
}

TEST_F(CrashDeviceTest, LargeWritesAreTornToo) {
  Write(0, "abcdefgh");
  Write(8, "ijklmnop");
  const Pictures pictures = AllPictures(device_.TakeLog(), 16);
  for (const char* expected :
       {"................", "abcdefghijklmnop", "abcdefgh........", "........ijklmnop",
        "abc.............", "...defgh........", "abcdefghijkl....", "abc.....ijklmnop"}) {
    EXPECT_EQ(pictures.count(expected), 1u) << expected;
  }
  EXPECT_GT(pictures.size(), 100u);
}

TEST_F(CrashDeviceTest, AFlushCoversOnlyWhatHadCompletedBefore) {
  auto a = Filled(512, 'a'), b = Filled(512, 'b');
  TestRequest write_a(IoOp::kWrite, 0, a), write_b(IoOp::kWrite, 512, b), flush(IoOp::kFlush);
  device_.Submit(write_a.AsSpan());
  IoRequest* const together[] = {&write_b, &flush};
  device_.Submit(together);
  ASSERT_EQ(flush.Wait(), Error::kOk);
  device_.Mark(1);
  // b was in flight when the flush was submitted, and may be lost although both are done.
  Pictures after_flush;
  CrashLog log = device_.TakeLog();
  CrashStates states(log);
  while (states.Next()) {
    if (states.Mark() == 1u) after_flush.insert(Picture(states.Materialize().get(), 2));
  }
  EXPECT_EQ(after_flush, (Pictures{"a.", "ab"}));
  Flush();
  device_.Mark(2);
  log = device_.TakeLog();
  CrashStates all(log);
  Pictures at_the_end;
  while (all.Next()) {
    if (all.Mark() == 2u) at_the_end.insert(Picture(all.Materialize().get(), 2));
  }
  EXPECT_EQ(at_the_end, (Pictures{"ab"}));
}

TEST_F(CrashDeviceTest, OfOverwritesTheNewestThatMadeItIsSeen) {
  Write(0, "a");
  Write(0, "b");  // submitted after a's completion: never the other way round
  EXPECT_EQ(AllPictures(device_.TakeLog(), 1), (Pictures{".", "a", "b"}));
  device_.StartLog();
  Write(1, "cc");
  Write(2, "dd");
  EXPECT_EQ(AllPictures(device_.TakeLog(), 4),
            (Pictures{"b...", "bc..", "b.c.", "bcc.", "b.d.", "bcd.", "b..d", "bc.d", "b.cd",
                      "bccd", "b.dd", "bcdd"}));
}

TEST_F(CrashDeviceTest, OverwritesInFlightTogetherComeInBothOrders) {
  std::vector<std::byte> ab = Filled(512, 'a'), cd = Filled(512, 'c');
  const auto b = Filled(512, 'b'), d = Filled(512, 'd');
  ab.insert(ab.end(), b.begin(), b.end());
  cd.insert(cd.end(), d.begin(), d.end());
  TestRequest one(IoOp::kWrite, 0, ab), two(IoOp::kWrite, 0, cd);
  IoRequest* const together[] = {&one, &two};
  device_.Submit(together);
  EXPECT_EQ(AllPictures(device_.TakeLog(), 2),
            (Pictures{"..", "a.", ".b", "ab", "c.", ".d", "cd", "ad", "cb"}));
}

TEST_F(CrashDeviceTest, DiscardedRangesMayReadAsAnything) {
  Write(0, "a");
  Flush();
  device_.StartLog();
  ASSERT_EQ(device_.Discard(0, 512), Error::kOk);
  EXPECT_EQ(Picture(&device_, 1), ".");
  EXPECT_EQ(AllPictures(device_.TakeLog(), 1), (Pictures{"a", "."}));
}

TEST_F(CrashDeviceTest, StartsAsAnOlderImage) {
  Write(0, "old");
  CrashDevice device(device_.Image());
  ASSERT_EQ(device.Write(0, Filled(512, 'N')), Error::kOk);
  EXPECT_EQ(Picture(&device_, 3), "old");
  EXPECT_EQ(AllPictures(device.TakeLog(), 4), (Pictures{"old.", "Nld."}));
}

TEST_F(CrashDeviceTest, MarksTellHowFarTheWorkloadWas) {
  Write(0, "a");
  device_.Mark(1);
  Flush();
  device_.Mark(2);
  Write(1, "b");
  const CrashLog log = device_.TakeLog();
  std::map<std::string, std::set<uint64_t>> marks;
  CrashStates states(log);
  while (states.Next()) {
    marks[Picture(states.Materialize().get(), 2)].insert(states.Mark().value_or(0));
  }
  EXPECT_EQ(marks[".."], (std::set<uint64_t>{1}));
  EXPECT_EQ(marks["a."], (std::set<uint64_t>{1, 2}));
  EXPECT_EQ(marks["ab"], (std::set<uint64_t>{2}));
}

TEST_F(CrashDeviceTest, SameContentsAreMadeOnce) {
  Write(0, "a");
  Flush();
  device_.StartLog();
  for (int i = 0; i < 5; ++i) Write(0, "a");  // changes nothing
  Write(1, "b");
  const CrashLog log = device_.TakeLog();
  CrashStates states(log);
  uint64_t count = 0;
  while (states.Next()) ++count;
  EXPECT_EQ(count, 2u);
}

TEST_F(CrashDeviceTest, TwelveWritesAreExhaustive) {
  for (uint64_t i = 0; i < 12; ++i) Write(i * 8, "x");
  const CrashLog log = device_.TakeLog();
  CrashStates states(log);
  while (states.Next()) {
  }
  EXPECT_EQ(states.count(), 4096u);
}

TEST_F(CrashDeviceTest, ManyWritesAreSampledAlikeForOneSeed) {
  for (uint64_t i = 0; i < 100; ++i) Write(i * 4, "xyz");
  const CrashLog log = device_.TakeLog();
  const auto tokens = [&log](uint64_t seed) {
    std::vector<std::string> all;
    CrashStates states(log, {.samples = 500, .seed = seed});
    while (states.Next()) all.push_back(states.Token());
    return all;
  };
  const auto one = tokens(1);
  EXPECT_GE(one.size(), 600u);  // singles too
  EXPECT_LE(one.size(), 801u);
  EXPECT_EQ(one, tokens(1));
  EXPECT_NE(one, tokens(2));
}

TEST_F(CrashDeviceTest, ATokenMakesTheSameStateAgain) {
  Write(0, "abcdefghij");
  Flush();
  for (uint64_t i = 0; i < 20; ++i) Write(i, "klmno");
  const CrashLog log = device_.TakeLog();
  std::map<std::string, std::string> pictures;
  CrashStates states(log, {.samples = 200});
  while (states.Next()) pictures[states.Token()] = Picture(states.Materialize().get(), 32);
  EXPECT_GT(pictures.size(), 200u);
  for (const auto& [token, picture] : pictures) {
    CrashStates again(log);
    ASSERT_EQ(again.GoTo(token), Error::kOk) << token;
    ASSERT_EQ(Picture(again.Materialize().get(), 32), picture) << token;
    ASSERT_EQ(again.Token(), token);
  }
}

TEST_F(CrashDeviceTest, TokensOfOtherRunsAreRefused) {
  Write(0, "abc");
  const CrashLog log = device_.TakeLog();
  CrashStates states(log);
  std::string last;
  while (states.Next()) last = states.Token();
  CrashDevice other(1 << 20);
  ASSERT_EQ(other.Write(0, Filled(1536, 'z')), Error::kOk);
  const CrashLog other_log = other.TakeLog();
  for (const std::string& token :
       {last, std::string(), std::string("c1:0::zz"), std::string("c1:9999::0"),
        std::string("c1:2:7:0"), std::string("c1:2:0=q:0"), std::string("c1:2:0=ffff:0")}) {
    CrashStates fresh(other_log);
    EXPECT_EQ(fresh.GoTo(token), Error::kInvalid) << token;
  }
}

TEST_F(CrashDeviceTest, StatesAreIndependent) {
  Write(0, "abcdefgh");  // a whole block, shared with the log
  const CrashLog log = device_.TakeLog();
  CrashStates states(log);
  std::vector<std::unique_ptr<MemoryDevice>> devices;
  while (states.Next()) {
    devices.push_back(states.Materialize());
    ASSERT_EQ(devices.back()->Write(512, Filled(512, 'Z')), Error::kOk);
  }
  for (auto& device : devices) EXPECT_EQ(Picture(device.get(), 2)[1], 'Z');
  EXPECT_EQ(AllPictures(log, 8).count("abcdefgh"), 1u);
  EXPECT_EQ(Picture(&device_, 8), "abcdefgh");
}

TEST_F(CrashDeviceTest, ThreadsMayUseItTogether) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < 20; ++i) {
        Write(t * 32 + i, std::string(1, static_cast<char>('a' + t)));
        if (i % 5 == 4) Flush();
        device_.Mark(i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Flush();
  const CrashLog log = device_.TakeLog();
  EXPECT_EQ(log.writes.size(), 80u);
  CrashStates states(log, {.samples = 50});
  std::string last;
  while (states.Next()) last = Picture(states.Materialize().get(), 128);
  EXPECT_EQ(last, Picture(&device_, 128));
}

// The judge must be able to fail: a "commit" without its flush.
TEST_F(CrashDeviceTest, AMissingFlushIsFoundOut) {
  const auto run = [](bool with_flush) {
    CrashDevice device(1 << 20);
    EXPECT_EQ(device.Write(0, Filled(4096, 'd')), Error::kOk);  // the log record
    if (with_flush) {
      EXPECT_EQ(device.Flush(), Error::kOk);
    }
    EXPECT_EQ(device.Write(8192, Filled(512, 'c')), Error::kOk);  // the commit record
    EXPECT_EQ(device.Flush(), Error::kOk);
    device.Mark(1);
    const CrashLog log = device.TakeLog();
    CrashStates states(log);
    int wrong = 0;
    while (states.Next()) {
      auto state = states.Materialize();
      const bool committed = Picture(state.get(), 17)[16] == 'c';
      const bool complete = Picture(state.get(), 8) == "dddddddd";
      if (committed && !complete) ++wrong;
      if (states.Mark() == 1u && !committed) ++wrong;
    }
    return wrong;
  };
  EXPECT_EQ(run(true), 0);
  EXPECT_GT(run(false), 0);
}

TEST_F(CrashDeviceTest, TheHelperJudgesEveryState) {
  Write(0, "ab");
  Flush();
  device_.Mark(7);
  std::set<std::string> judged;
  const uint64_t count =
      CheckCrashStates(device_.TakeLog(), [&](MemoryDevice* device, std::optional<uint64_t> mark) {
        const std::string picture = Picture(device, 2);
        judged.insert(picture);
        return mark == 7u && picture != "ab" ? "promised but lost: " + picture : std::string();
      });
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(judged, (Pictures{"..", "a.", ".b", "ab"}));
}

TEST_F(CrashDeviceTest, ThousandsOfStatesASecond) {
  // A realistic size: a 64 MiB image, journal-sized writes. Bounds work, not time: views share.
  CrashDevice device(64 << 20);
  for (uint64_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(device.Write(i * 4096, Filled(4096, 'o')), Error::kOk);
  }
  device.StartLog();
  for (uint64_t i = 0; i < 12; ++i) {
    ASSERT_EQ(device.Write(i * 65536, Filled(65536, 'n')), Error::kOk);
  }
  const CrashLog log = device.TakeLog();
  CrashStates states(log);
  uint64_t count = 0;
  while (states.Next()) {
    auto state = states.Materialize();
    std::vector<std::byte> data(4096);
    ASSERT_EQ(state->Read(0, data), Error::kOk);
    ++count;
  }
  EXPECT_GE(count, 4096u + 12 * 16);
}

}  // namespace
}  // namespace sluice
