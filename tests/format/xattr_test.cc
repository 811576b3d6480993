// SPDX-License-Identifier: Apache-2.0
#include "format/xattr.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>

namespace sluice::format {
namespace {

struct Block {
  alignas(8) std::array<std::byte, kBlockSize> bytes = {};
  BlockSpan span() { return BlockSpan(bytes); }
};

XattrView View(uint8_t name_space, const std::string& name, const std::string& value) {
  return {.name = {name_space, name},
          .value = std::as_bytes(std::span(value.data(), value.size()))};
}

TEST(Xattr, NamesAreTakenApart) {
  const XattrName name = ParseXattrName("user.a.b").value();
  EXPECT_EQ(name.name_space, kXattrUser);
  EXPECT_EQ(name.name, "a.b");
  EXPECT_EQ(ParseXattrName("security.x")->name_space, kXattrSecurity);
  EXPECT_EQ(ParseXattrName("user.").error(), Error::kInvalid);
  EXPECT_EQ(ParseXattrName("system.posix_acl_access").error(), Error::kNotSupported);
  EXPECT_EQ(ParseXattrName("user").error(), Error::kNotSupported);
  EXPECT_TRUE(ParseXattrName("user." + std::string(250, 'n')).ok());
  EXPECT_EQ(ParseXattrName("user." + std::string(251, 'n')).error(), Error::kRange);
}

TEST(Xattr, ChangesAgreeWithAMap) {
  std::mt19937 random(5);
  std::map<std::pair<uint8_t, std::string>, std::string> model;
  Block block;
  InitXattrBlock(block.span());
  int full = 0;
  for (int step = 0; step < 20'000; ++step) {
    const uint8_t name_space = static_cast<uint8_t>(1 + random() % 3);
    const std::string name(1 + random() % 20, static_cast<char>('a' + random() % 5));
    Block next;
    if (random() % 3 == 0) {
      const Error error = DropXattr(block.span(), {name_space, name}, next.span());
      EXPECT_EQ(error, model.erase({name_space, name}) > 0 ? Error::kOk : Error::kNoData);
      if (error == Error::kOk) block = next;
    } else {
      const std::string value(random() % 200, static_cast<char>(step));
      const Error error = PutXattr(block.span(), View(name_space, name, value), next.span());
      if (error == Error::kOk) {
        block = next;
        model[{name_space, name}] = value;
      } else {
        EXPECT_EQ(error, Error::kNoSpace);
        ++full;
      }
    }
    const char* reason = "";
    ASSERT_EQ(CheckXattrBlock(block.span(), &reason), Error::kOk) << reason;
    XattrReader reader(block.span());
    auto expected = model.begin();
    for (XattrView view; reader.Next(&view); ++expected) {
      ASSERT_TRUE(expected != model.end());
      EXPECT_EQ(view.name.name_space, expected->first.first);
      EXPECT_EQ(view.name.name, expected->first.second);
      EXPECT_EQ(view.value.size(), expected->second.size());
    }
    ASSERT_TRUE(expected == model.end());
  }
  EXPECT_GT(full, 0);
  EXPECT_EQ(FindXattr(block.span(), {kXattrUser, "none"}).error(), Error::kNoData);
}

TEST(Xattr, OneValueFillsTheBlock) {
  Block empty;
  InitXattrBlock(empty.span());
  Block block;
  const size_t room = kBlockSize - kXattrEntriesOffset - sizeof(XattrEntry) - 1;
  EXPECT_EQ(PutXattr(empty.span(), View(kXattrUser, "n", std::string(room, 'v')), block.span()),
            Error::kOk);
  EXPECT_EQ(CheckXattrBlock(block.span(), nullptr), Error::kOk);
  EXPECT_EQ(PutXattr(empty.span(), View(kXattrUser, "n", std::string(room + 1, 'v')), block.span()),
            Error::kNoSpace);
}

// No byte that is changed makes a reader leave the block.
TEST(Xattr, DamageIsFoundOrHarmless) {
  Block good;
  InitXattrBlock(good.span());
  for (int i = 0; i < 20; ++i) {
    Block next;
    ASSERT_EQ(
        PutXattr(good.span(), View(1 + i % 3, "name" + std::to_string(i), "value"), next.span()),
        Error::kOk);
    good = next;
  }
  std::mt19937 random(9);
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    Block bad = good;
    for (int flips = 0; flips < 3; ++flips) {
      bad.bytes[kXattrHeaderOffset + random() % 400] = static_cast<std::byte>(random());
    }
    if (CheckXattrBlock(bad.span(), nullptr) != Error::kOk) {
      ++found;
      continue;
    }
    size_t bytes = 0;
    XattrReader reader(bad.span());
    for (XattrView view; reader.Next(&view);) {
      for (std::byte value : view.value) bytes += static_cast<size_t>(value);
    }
    EXPECT_GE(bytes, 0u);
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace sluice::format
