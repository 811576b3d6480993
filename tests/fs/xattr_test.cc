// SPDX-License-Identifier: Apache-2.0
//
// Extended attributes, against a map, with remounts and crashes.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <random>
#include <string>

#include "fs/filesystem_impl.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::FileTest;
using testing_support::kRoot;
using testing_support::kUser;

class XattrTest : public FileTest {
 protected:
  Error Set(const std::string& name, const std::string& value,
            XattrSetMode mode = XattrSetMode::kAny) {
    return RunBlocking([&](Attempt& a) {
      return fs_->SetXattr(a, kRoot, file_, name, std::as_bytes(std::span(value)), mode);
    });
  }
  Result<std::string> Get(const std::string& name, size_t room = 5000) {
    std::string value(room, '?');
    const Result<size_t> size = RunBlocking([&](Attempt& a) {
      return fs_->GetXattr(a, file_, name, std::as_writable_bytes(std::span(value)));
    });
    if (!size.ok()) return size.error();
    value.resize(std::min(*size, room));
    return value;
  }
  std::string List(const Caller& caller = kRoot) {
    std::string names(10'000, '?');
    names.resize(RunBlocking([&](Attempt& a) {
                   return fs_->ListXattr(a, caller, file_,
                                         std::as_writable_bytes(std::span(names)));
                 }).value());
    return names;
  }
  Error Remove(const std::string& name) {
    return RunBlocking([&](Attempt& a) { return fs_->RemoveXattr(a, file_, name); });
  }
  uint64_t Blocks() { return fs_->GetAttributes(file_).sectors / 8; }
};

TEST_F(XattrTest, SetGetListRemove) {
  const uint64_t free = fs_->Statfs().free_blocks;
  EXPECT_EQ(Get("user.a").error(), Error::kNoData);
  EXPECT_EQ(List(), "");
  EXPECT_EQ(Remove("user.a"), Error::kNoData);
  ASSERT_EQ(Set("user.b", "two"), Error::kOk);
  ASSERT_EQ(Set("user.a", ""), Error::kOk);
  ASSERT_EQ(Set("trusted.t", "secret"), Error::kOk);
  EXPECT_EQ(Blocks(), 1u);
  EXPECT_EQ(Get("user.b").value(), "two");
  EXPECT_EQ(Get("user.a").value(), "");
  EXPECT_EQ(Get("user.b", 2).error(), Error::kRange);
  EXPECT_EQ(List(), std::string("user.a\0user.b\0trusted.t\0", 24));
  EXPECT_EQ(List(kUser), std::string("user.a\0user.b\0", 14));
  EXPECT_EQ(Set("user.b", "x", XattrSetMode::kCreate), Error::kExists);
  EXPECT_EQ(Set("user.c", "x", XattrSetMode::kReplace), Error::kNoData);
  ASSERT_EQ(Set("user.b", "three", XattrSetMode::kReplace), Error::kOk);
  RemountFile();
  EXPECT_EQ(Get("user.b").value(), "three");
  ASSERT_EQ(Remove("user.b"), Error::kOk);
  ASSERT_EQ(Remove("user.a"), Error::kOk);
  ASSERT_EQ(Remove("trusted.t"), Error::kOk);
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(fs_->Statfs().free_blocks, free);
}

TEST_F(XattrTest, LimitsAndRefusals) {
  EXPECT_EQ(Set("system.posix_acl_access", "x"), Error::kNotSupported);
  EXPECT_EQ(Set("user.", "x"), Error::kInvalid);
  EXPECT_EQ(Set("user.big", std::string(4096, 'x')), Error::kNoSpace);
  EXPECT_EQ(Blocks(), 0u);
  ASSERT_EQ(Set("user.big", std::string(4000, 'x')), Error::kOk);
  EXPECT_EQ(Set("user.more", std::string(100, 'x')), Error::kNoSpace);
  EXPECT_EQ(Get("user.big").value(), std::string(4000, 'x'));
  ASSERT_EQ(files().SetFlags(file_, format::kInodeImmutable), Error::kOk);
  EXPECT_EQ(Set("user.big", ""), Error::kNotPermitted);
  EXPECT_EQ(Remove("user.big"), Error::kNotPermitted);
  ASSERT_EQ(files().SetFlags(file_, 0), Error::kOk);
}

TEST_F(XattrTest, TheBlockGoesWithTheFile) {
  const uint64_t free = fs_->Statfs().free_blocks;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "g" + std::to_string(i);
    const InodeRef kept =
        std::exchange(file_, i % 2 == 0 ? files().Create(files().Root(), name).value()
                                        : files().Symlink(files().Root(), name, "target").value());
    ASSERT_EQ(Set("trusted.x", std::string(i, 'v')), Error::kOk);
    file_ = kept;
  }
  RemountFile();
  for (int i = 0; i < 50; ++i) {
    const std::string name = "g" + std::to_string(i);
    const InodeRef gone = files().Lookup(files().Root(), name).value();
    ASSERT_EQ(files().Unlink(files().Root(), name), Error::kOk);
    fs_->impl()->inodes->Unreferenced(gone);
  }
  fs_->impl()->inodes->DrainReaper();
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  EXPECT_EQ(fs_->Statfs().free_blocks, free);
}

// An attribute block that was freed and became file data is not brought back by a replay.
TEST_F(XattrTest, AFreedBlockIsRevoked) {
  ASSERT_EQ(Set("user.a", std::string(3000, 'a')), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  ASSERT_EQ(Remove("user.a"), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  // Takes all there is, and so that block too.
  const std::string piece(1 << 20, 'd');
  uint64_t size = 0;
  while (files().Write(file_, size, piece) == Error::kOk) size += piece.size();
  while (files().Write(file_, size, std::string(4096, 'd')) == Error::kOk) size += 4096;
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  file_.reset();
  Crash();
  Mount();
  file_ = files().Lookup(files().Root(), "f").value();
  EXPECT_EQ(List(), "");
  for (uint64_t at = 0; at + piece.size() <= size; at += piece.size()) {
    ASSERT_TRUE(files().Read(file_, at, piece.size()).value() == piece) << at;
  }
}

TEST_F(XattrTest, RandomChangesAgreeWithAMap) {
  std::mt19937 random(23);
  std::map<std::string, std::string> model;
  for (int step = 0; step < 3000 && !HasFatalFailure(); ++step) {
    const std::string name =
        (random() % 2 == 0 ? "user." : "security.") + std::string(1 + random() % 9, 'n');
    switch (random() % 5) {
      case 0:
        ASSERT_EQ(Remove(name), model.erase(name) > 0 ? Error::kOk : Error::kNoData);
        break;
      case 1:
        if (random() % 50 == 0) {
          ASSERT_EQ(fs_->Sync(), Error::kOk);
          file_.reset();
          Crash();
          Mount();
          file_ = files().Lookup(files().Root(), "f").value();
        } else if (random() % 50 == 0) {
          RemountFile();
        }
        break;
      default: {
        const std::string value(random() % 600, static_cast<char>('a' + step % 26));
        const Error error = Set(name, value);
        if (error == Error::kOk) {
          model[name] = value;
        } else {
          ASSERT_EQ(error, Error::kNoSpace);
        }
      }
    }
    const auto found = model.find(name);
    const Result<std::string> value = Get(name);
    ASSERT_EQ(value.ok(), found != model.end());
    if (value.ok()) {
      ASSERT_EQ(*value, found->second);
    }
    ASSERT_EQ(Blocks(), model.empty() ? 0u : 1u);
  }
}

}  // namespace
}  // namespace sluice
