// SPDX-License-Identifier: Apache-2.0
#include "format/debug_string.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::format {

namespace {

// Collects "name=value" pairs behind a structure's name.
class Line {
 public:
  explicit Line(const char* structure) : text_(structure) {}

  template <typename T>
  Line& Add(const char* name, Le<T> value) {
    absl::StrAppend(&text_, " ", name, "=", static_cast<T>(value));
    return *this;
  }
  Line& Add(const char* name, uint8_t value) {
    absl::StrAppend(&text_, " ", name, "=", static_cast<uint32_t>(value));
    return *this;
  }
  Line& Add(const char* name, const std::string& value) {
    absl::StrAppend(&text_, " ", name, "=", value);
    return *this;
  }
  template <typename T>
  Line& Hex(const char* name, Le<T> value) {
    absl::StrAppend(&text_, " ", name, "=0x", absl::Hex(static_cast<T>(value)));
    return *this;
  }
  std::string text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string KindName(uint16_t kind) {
  switch (static_cast<BlockKind>(kind)) {
    case BlockKind::kBlockBitmap:
      return "block bitmap";
    case BlockKind::kInodeBitmap:
      return "inode bitmap";
    case BlockKind::kInodeTable:
      return "inode table";
    case BlockKind::kGroupTable:
      return "group table";
    case BlockKind::kExtent:
      return "extent";
    case BlockKind::kDirectory:
      return "directory";
    case BlockKind::kXattr:
      return "extended attribute";
    case BlockKind::kOrphan:
      return "orphan";
    case BlockKind::kLogDescriptor:
      return "log descriptor";
    case BlockKind::kLogRevoke:
      return "log revoke";
    case BlockKind::kLogCommit:
      return "log commit";
  }
  return absl::StrCat("kind ", kind);
}

std::string PrintableText(const char* text, size_t size) {
  std::string out;
  for (size_t i = 0; i < size && text[i] != 0; ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      out.push_back(text[i]);
    } else {
      out += absl::StrFormat("\\x%02x", c);
    }
  }
  return out;
}

std::string UuidText(const uint8_t (&uuid)[16]) {
  std::string out;
  for (size_t i = 0; i < sizeof(uuid); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out.push_back('-');
    out += absl::StrFormat("%02x", uuid[i]);
  }
  return out;
}

std::string DebugString(const BlockHeader& header) {
  return Line("BlockHeader")
      .Hex("magic", header.magic)
      .Add("kind", KindName(header.kind))
      .Add("version", header.version)
      .Hex("checksum", header.checksum)
      .Add("block", header.block)
      .Add("owner", header.owner)
      .Add("generation", header.generation)
      .text();
}

std::string DebugString(const JournalRun& run) {
  return Line("JournalRun").Add("start", run.start).Add("length", run.length).text();
}

std::string DebugString(const SuperSector0& sector) {
  return Line("SuperSector0")
      .Add("version", sector.version)
      .Hex("feature_compat", sector.feature_compat)
      .Hex("feature_ro_compat", sector.feature_ro_compat)
      .Hex("feature_incompat", sector.feature_incompat)
      .Add("block_count", sector.block_count)
      .Add("group_count", sector.group_count)
      .Add("inodes_per_group", sector.inodes_per_group)
      .Add("flex_group_shift", sector.flex_group_shift)
      .Add("inode_count", sector.inode_count)
      .Add("reserved_blocks", sector.reserved_blocks)
      .Hex("checksum_seed", sector.checksum_seed)
      .Hex("hash_seed", sector.hash_seed)
      .Add("group_table_start", sector.group_table_start)
      .Add("group_table_blocks", sector.group_table_blocks)
      .Add("created", sector.created)
      .Add("uuid", UuidText(sector.uuid))
      .Add("label", PrintableText(sector.label, sizeof(sector.label)))
      .Add("backup_group", sector.backup_group)
      .Add("journal_run_count", sector.journal_run_count)
      .text();
}

std::string DebugString(const SuperSector1& sector) {
  return Line("SuperSector1")
      .Hex("state", sector.state)
      .Add("mount_count", sector.mount_count)
      .Add("last_mount", sector.last_mount)
      .Add("last_write", sector.last_write)
      .Add("last_check", sector.last_check)
      .Add("lifetime_writes", sector.lifetime_writes)
      .Add("error_count", sector.error_count)
      .Add("first_error_time", sector.first_error_time)
      .Add("last_error_time", sector.last_error_time)
      .Add("last_error_inode", sector.last_error_inode)
      .Add("last_error_block", sector.last_error_block)
      .Add("last_error_text", PrintableText(sector.last_error_text, sizeof(sector.last_error_text)))
      .Add("last_mountpoint", PrintableText(sector.last_mountpoint, sizeof(sector.last_mountpoint)))
      .text();
}

std::string DebugString(const GroupDesc& desc) {
  return Line("GroupDesc")
      .Hex("flags", desc.flags)
      .Add("free_blocks", desc.free_blocks)
      .Add("free_inodes", desc.free_inodes)
      .Add("directories", desc.directories)
      .Add("inode_table_used", desc.inode_table_used)
      .Hex("block_bitmap_checksum", desc.block_bitmap_checksum)
      .Hex("inode_bitmap_checksum", desc.inode_bitmap_checksum)
      .text();
}

std::string DebugString(const ExtentHeader& header) {
  return Line("ExtentHeader")
      .Hex("magic", header.magic)
      .Add("entries", header.entries)
      .Add("capacity", header.capacity)
      .Add("depth", header.depth)
      .text();
}

std::string DebugString(const Extent& extent) {
  return Line("Extent")
      .Add("logical", extent.logical)
      .Add("length", extent.length)
      .Hex("flags", extent.flags)
      .Add("physical", extent.physical)
      .text();
}

std::string DebugString(const ExtentIndex& index) {
  return Line("ExtentIndex").Add("logical", index.logical).Add("child", index.child).text();
}

std::string DebugString(const Inode& inode) {
  return Line("Inode")
      .Add("mode", absl::StrFormat("0%o", uint32_t{inode.mode}))
      .Hex("flags", inode.flags)
      .Add("uid", inode.uid)
      .Add("gid", inode.gid)
      .Add("links", inode.links)
      .Add("generation", inode.generation)
      .Add("size", inode.size)
      .Add("blocks", inode.blocks)
      .Add("atime", inode.atime)
      .Add("mtime", inode.mtime)
      .Add("ctime", inode.ctime)
      .Add("btime", inode.btime)
      .Add("parent", inode.parent)
      .Add("device", inode.device)
      .Add("xattr_block", inode.xattr_block)
      .Add("project", inode.project)
      .Hex("checksum", inode.checksum)
      .text();
}

std::string DebugString(const DirNodeHeader& header) {
  return Line("DirNodeHeader")
      .Add("level", header.level)
      .Add("count", header.count)
      .Add("heap_start", header.heap_start)
      .Add("garbage", header.garbage)
      .text();
}

std::string DebugString(const DirIndexEntry& entry) {
  return Line("DirIndexEntry").Hex("key", entry.key).Add("child", entry.child).text();
}

std::string DebugString(const DirEntry& entry) {
  return Line("DirEntry")
      .Hex("key", entry.key)
      .Add("inode", entry.inode)
      .Add("name_length", entry.name_length)
      .Add("type", entry.type)
      .text();
}

std::string DebugString(const OrphanHeader& header) {
  return Line("OrphanHeader").Add("count", header.count).text();
}

std::string DebugString(const JournalSuper& super) {
  return Line("JournalSuper")
      .Hex("magic", super.magic)
      .Hex("checksum", super.checksum)
      .Add("generation", super.generation)
      .Hex("incarnation", super.incarnation)
      .Add("log_blocks", super.log_blocks)
      .Add("tail_block", super.tail_block)
      .Add("tail_tid", super.tail_tid)
      .Add("uuid", UuidText(super.uuid))
      .Add("error", super.error)
      .text();
}

std::string DebugString(const LogRecordHeader& header) {
  return Line("LogRecordHeader")
      .Add("tid", header.tid)
      .Add("count", header.count)
      .Hex("flags", header.flags)
      .text();
}

std::string DebugString(const LogTag& tag) {
  return Line("LogTag")
      .Add("block", tag.block)
      .Add("kind", KindName(tag.kind))
      .Hex("flags", tag.flags)
      .Hex("checksum", tag.checksum)
      .text();
}

std::string DebugString(const LogCommit& commit) {
  return Line("LogCommit")
      .Add("tid", commit.tid)
      .Add("time", commit.time)
      .Add("log_blocks", commit.log_blocks)
      .Hex("flags", commit.flags)
      .Hex("transaction_checksum", commit.transaction_checksum)
      .text();
}

}  // namespace sluice::format
