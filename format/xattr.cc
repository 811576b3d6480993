// SPDX-License-Identifier: Apache-2.0
#include "format/xattr.h"

#include <algorithm>
#include <cstring>

namespace sluice::format {
namespace {

constexpr size_t kMaxXattrName = 255;  // as VFS counts: with the name space

const XattrHeader& HeaderOf(ConstBlockSpan block) {
  return *As<XattrHeader>(block.data() + kXattrHeaderOffset);
}

// The attribute at `at`, which has been checked.
XattrView ViewAt(ConstBlockSpan block, uint32_t at, uint32_t* next) {
  const XattrEntry& entry = *As<XattrEntry>(block.data() + at);
  const uint32_t name = at + sizeof(XattrEntry);
  const uint32_t value = name + entry.name_length;
  *next = value + entry.value_length;
  return {.name = {entry.name_space,
                   std::string_view(reinterpret_cast<const char*>(block.data()) + name,
                                    entry.name_length)},
          .value = block.subspan(value, entry.value_length)};
}

const char* EntryProblem(ConstBlockSpan block, uint32_t at, uint32_t end) {
  if (end - at < sizeof(XattrEntry)) return "attribute behind the end of the block";
  const XattrEntry& entry = *As<XattrEntry>(block.data() + at);
  if (XattrPrefix(entry.name_space).empty()) return "attribute of an unknown name space";
  if (entry.name_length == 0) return "attribute without a name";
  if (end - at - sizeof(XattrEntry) < uint32_t{entry.name_length} + entry.value_length) {
    return "attribute behind the end of the block";
  }
  uint32_t next;
  const std::string_view name = ViewAt(block, at, &next).name.name;
  if (name.find('\0') != std::string_view::npos) return "NUL in the name of an attribute";
  if (name.size() + XattrPrefix(entry.name_space).size() > kMaxXattrName) {
    return "name of an attribute too long";
  }
  return nullptr;
}

const char* BlockProblem(ConstBlockSpan block) {
  const XattrHeader& header = HeaderOf(block);
  const uint32_t end = header.end;
  if (end < kXattrEntriesOffset || end > kBlockSize) return "impossible end of the attributes";
  uint32_t at = kXattrEntriesOffset;
  XattrName last;
  for (uint32_t i = 0; i < header.count; ++i) {
    if (const char* problem = EntryProblem(block, at, end); problem != nullptr) return problem;
    const XattrName name = ViewAt(block, at, &at).name;
    if (i > 0 && !(last < name)) return "attributes out of order";
    last = name;
  }
  return at == end ? nullptr : "attributes do not end where they should";
}

// Fills the part of a block behind its BlockHeader, attribute by attribute in order.
class Builder {
 public:
  explicit Builder(BlockSpan block) : block_(block) { InitXattrBlock(block); }

  Error Add(const XattrView& attribute) {
    const size_t size = sizeof(XattrEntry) + attribute.name.name.size() + attribute.value.size();
    if (size > kBlockSize - at_) return Error::kNoSpace;
    XattrEntry entry = {};
    entry.name_space = attribute.name.name_space;
    entry.name_length = static_cast<uint8_t>(attribute.name.name.size());
    entry.value_length = static_cast<uint16_t>(attribute.value.size());
    std::byte* out = block_.data() + at_;
    std::memcpy(out, &entry, sizeof(entry));
    out += sizeof(entry);
    out = std::copy_n(reinterpret_cast<const std::byte*>(attribute.name.name.data()),
                      attribute.name.name.size(), out);
    std::copy(attribute.value.begin(), attribute.value.end(), out);
    at_ += static_cast<uint32_t>(size);
    XattrHeader* header = As<XattrHeader>(block_.data() + kXattrHeaderOffset);
    header->count = static_cast<uint16_t>(header->count + 1);
    header->end = static_cast<uint16_t>(at_);
    return Error::kOk;
  }

 private:
  const BlockSpan block_;
  uint32_t at_ = kXattrEntriesOffset;
};

}  // namespace

bool operator<(const XattrName& a, const XattrName& b) {
  return a.name_space != b.name_space ? a.name_space < b.name_space : a.name < b.name;
}

std::string_view XattrPrefix(uint8_t name_space) {
  switch (name_space) {
    case kXattrUser:
      return "user.";
    case kXattrTrusted:
      return "trusted.";
    case kXattrSecurity:
      return "security.";
    default:
      return "";
  }
}

Result<XattrName> ParseXattrName(std::string_view full) {
  if (full.size() > kMaxXattrName) return Error::kRange;
  for (const uint8_t name_space : {kXattrUser, kXattrTrusted, kXattrSecurity}) {
    const std::string_view prefix = XattrPrefix(name_space);
    if (!full.starts_with(prefix)) continue;
    if (full.size() == prefix.size()) return Error::kInvalid;
    if (full.find('\0') != std::string_view::npos) return Error::kInvalid;
    return XattrName{name_space, full.substr(prefix.size())};
  }
  return Error::kNotSupported;
}

Error CheckXattrBlock(ConstBlockSpan block, const char** reason) {
  const char* problem = BlockProblem(block);
  if (problem == nullptr) return Error::kOk;
  if (reason != nullptr) *reason = problem;
  return Error::kCorrupt;
}

XattrReader::XattrReader(ConstBlockSpan block) : block_(block), left_(HeaderOf(block).count) {}

bool XattrReader::Next(XattrView* attribute) {
  if (left_ == 0) return false;
  --left_;
  *attribute = ViewAt(block_, at_, &at_);
  return true;
}

Result<std::span<const std::byte>> FindXattr(ConstBlockSpan block, const XattrName& name) {
  XattrReader reader(block);
  for (XattrView attribute; reader.Next(&attribute);) {
    if (attribute.name == name) return attribute.value;
    if (name < attribute.name) break;
  }
  return Error::kNoData;
}

void InitXattrBlock(BlockSpan block) {
  std::fill(block.begin() + kXattrHeaderOffset, block.end(), std::byte{0});
  As<XattrHeader>(block.data() + kXattrHeaderOffset)->end = kXattrEntriesOffset;
}

Error PutXattr(ConstBlockSpan from, const XattrView& attribute, BlockSpan to) {
  Builder builder(to);
  XattrReader reader(from);
  bool added = false;
  if (attribute.value.size() > kBlockSize) return Error::kNoSpace;
  for (XattrView old; reader.Next(&old);) {
    if (!added && !(old.name < attribute.name)) {
      RETURN_IF_ERROR(builder.Add(attribute));
      added = true;
    }
    if (!(old.name == attribute.name)) RETURN_IF_ERROR(builder.Add(old));
  }
  return added ? Error::kOk : builder.Add(attribute);
}

Error DropXattr(ConstBlockSpan from, const XattrName& name, BlockSpan to) {
  Builder builder(to);
  XattrReader reader(from);
  bool found = false;
  for (XattrView old; reader.Next(&old);) {
    if (old.name == name) {
      found = true;
    } else {
      RETURN_IF_ERROR(builder.Add(old));
    }
  }
  return found ? Error::kOk : Error::kNoData;
}

}  // namespace sluice::format
