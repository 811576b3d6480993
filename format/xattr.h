// SPDX-License-Identifier: Apache-2.0
//
// Extended attributes of an inode: one block, which the inode's `xattr_block` names. Entries lie
// one behind the other in ascending order of (name space, name); what is behind the last is zero.
#ifndef SLUICE_FORMAT_XATTR_H_
#define SLUICE_FORMAT_XATTR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"

namespace sluice::format {

// The part of a name before its first dot.
inline constexpr uint8_t kXattrUser = 1;
inline constexpr uint8_t kXattrTrusted = 2;
inline constexpr uint8_t kXattrSecurity = 3;

// Follows the BlockHeader.
struct XattrHeader {
  Le16 count;  // entries
  Le16 end;    // offset in the block where the last entry ends
  Le32 reserved;
};
static_assert(OnDisk<XattrHeader> && sizeof(XattrHeader) == 8);
static_assert(offsetof(XattrHeader, count) == 0);
static_assert(offsetof(XattrHeader, end) == 2);
static_assert(offsetof(XattrHeader, reserved) == 4);

struct XattrEntry {
  uint8_t name_space;   // kXattrUser, kXattrTrusted, kXattrSecurity
  uint8_t name_length;  // 1..255, without the name space and its dot
  Le16 value_length;
  // the name's bytes, no NUL; then the value's
};
static_assert(OnDisk<XattrEntry> && sizeof(XattrEntry) == 4);
static_assert(offsetof(XattrEntry, name_space) == 0);
static_assert(offsetof(XattrEntry, name_length) == 1);
static_assert(offsetof(XattrEntry, value_length) == 2);

inline constexpr uint32_t kXattrHeaderOffset = sizeof(BlockHeader);
inline constexpr uint32_t kXattrEntriesOffset = kXattrHeaderOffset + sizeof(XattrHeader);  // 48

// An attribute's name: name space, and what is behind the dot.
struct XattrName {
  uint8_t name_space = 0;
  std::string_view name;
};
bool operator<(const XattrName& a, const XattrName& b);
inline bool operator==(const XattrName& a, const XattrName& b) {
  return a.name_space == b.name_space && a.name == b.name;
}

// The text of a name space with its dot ("user."); empty for an unknown one.
std::string_view XattrPrefix(uint8_t name_space);
// Takes a full name apart. kNotSupported for other name spaces, kInvalid for nothing behind the
// dot, kRange above 255 bytes in all.
Result<XattrName> ParseXattrName(std::string_view full);

// Checks what lies behind the BlockHeader. kCorrupt otherwise; `reason` may be null.
Error CheckXattrBlock(ConstBlockSpan block, const char** reason);

// Walks a block that passes CheckXattrBlock. Views into the block.
struct XattrView {
  XattrName name;
  std::span<const std::byte> value;
};
class XattrReader {
 public:
  explicit XattrReader(ConstBlockSpan block);
  // False at the end.
  bool Next(XattrView* attribute);

 private:
  const ConstBlockSpan block_;
  uint32_t left_;
  uint32_t at_ = kXattrEntriesOffset;
};

// The value of `name`; kNoData.
Result<std::span<const std::byte>> FindXattr(ConstBlockSpan block, const XattrName& name);

// No attributes: what lies behind the BlockHeader.
void InitXattrBlock(BlockSpan block);
// Writes into `to`, behind its BlockHeader, what `from` has with `attribute` added or replaced.
// kNoSpace if that does not fit; `to` is undefined then.
Error PutXattr(ConstBlockSpan from, const XattrView& attribute, BlockSpan to);
// The same without `name`. kNoData if it is not there.
Error DropXattr(ConstBlockSpan from, const XattrName& name, BlockSpan to);

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_XATTR_H_
