// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "block/memory_image.h"

namespace sluice::crash {
namespace {

// A word of a pattern: eight bytes at an offset that is a multiple of eight.
struct Word {
  uint8_t magic;
  uint8_t file;
  uint16_t version;
  uint32_t place;  // offset / 8
};
static_assert(sizeof(Word) == 8);
constexpr uint8_t kMagic = 0xc5;

}  // namespace

History::History(NodeId first) : next_(first) {
  auto root = std::make_shared<ModelNode>();
  root->type = NodeType::kDirectory;
  root->permissions = 0755;
  root->links = 2;
  now_[kRootId] = std::move(root);
  states_.push_back(now_);
  promises_.emplace_back();
  written_.push_back(0);
}

void History::StartHere() {
  patterns_ += last();
  states_ = {now_};
  promises_.assign(1, {});
  operations_.clear();
  written_.assign(1, 0);
  changes_.clear();
}

std::string History::Pattern(NodeId file, size_t version, uint64_t offset, uint64_t length) {
  std::string bytes(length, '\0');
  for (uint64_t i = 0; i < length; ++i) {
    const uint64_t at = offset + i;
    const Word word{kMagic, static_cast<uint8_t>(file), static_cast<uint16_t>(version),
                    static_cast<uint32_t>(at / sizeof(Word))};
    std::memcpy(&bytes[i], reinterpret_cast<const char*>(&word) + at % sizeof(Word), 1);
  }
  return bytes;
}

std::string History::DescribeBytes(std::string_view bytes, uint64_t offset) {
  const auto all = [&](char c) { return bytes.find_first_not_of(c) == std::string_view::npos; };
  if (bytes.empty()) return "nothing";
  if (all('\0')) return "zeros";
  if (all(static_cast<char>(kPoisonByte))) return "poison";
  std::string text;
  size_t at = (sizeof(Word) - offset % sizeof(Word)) % sizeof(Word);
  Word last{};
  for (; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    const bool goes_on = at >= sizeof(Word) && word.magic == last.magic && word.file == last.file &&
                         word.version == last.version;
    last = word;
    if (goes_on || text.size() > 400) continue;
    if (word.magic != kMagic) {
      absl::StrAppendFormat(&text, " +%d: bytes %02x%02x%02x%02x...", at, word.magic, word.file,
                            word.version & 0xff, word.version >> 8);
    } else {
      absl::StrAppendFormat(&text, " +%d: file %d version %d offset %d", at, word.file,
                            word.version, uint64_t{word.place} * sizeof(Word));
    }
  }
  return text.empty() ? "a few bytes" : text.substr(1);
}

NodeId History::Resolve(const std::string& path) const {
  if (IsDescriptor(path)) {
    const auto found = descriptors_.find(path);
    return found == descriptors_.end() ? 0 : found->second;
  }
  NodeId at = kRootId;
  for (const std::string& name : Components(path)) {
    const auto& entries = Get(at).entries;
    const auto found = entries.find(name);
    if (found == entries.end()) return 0;
    at = found->second;
  }
  return at;
}

// The node as it will be; changes of one operation are changes of one moment.
ModelNode* History::Edit(NodeId id, bool data) {
  auto copy = std::make_shared<ModelNode>(Get(id));
  ModelNode* const node = copy.get();
  now_[id] = std::move(copy);
  Change& change = changes_[id];
  change.any = states_.size();
  if (data) change.data = states_.size();
  return node;
}

Error History::Apply(const Operation& operation) {
  ModelState before = now_;
  const auto changes = changes_;
  written_.push_back(0);
  promises_.push_back(promises_.back());
  const Error error = Perform(operation);
  if (error != Error::kOk) {
    now_ = std::move(before);
    changes_ = changes;
    written_.pop_back();
    promises_.pop_back();
    return error;
  }
  states_.push_back(now_);
  operations_.push_back(operation);
  Persist(operation);
  return Error::kOk;
}

void History::Persist(const Operation& operation) {
  Promise& promise = promises_.back();
  switch (operation.kind) {
    case OpKind::kSync:
      promise.metadata = last();
      for (const auto& [id, node] : now_) promise.data[id] = last();
      return;
    case OpKind::kFsync:
    case OpKind::kFdatasync: {
      const NodeId id = Resolve(operation.names[0]);
      const Change change = changes_[id];
      const bool all = operation.kind == OpKind::kFsync;
      promise.metadata = std::max(promise.metadata, all ? change.any : change.data);
      promise.data[id] = last();
      return;
    }
    default:
      return;
  }
}

Error History::Perform(const Operation& operation) {
  const std::vector<std::string>& names = operation.names;
  switch (operation.kind) {
    case OpKind::kOpen:
      if (Resolve(names[1]) == 0) return Error::kNotFound;
      descriptors_[names[0]] = Resolve(names[1]);
      return Error::kOk;
    case OpKind::kTmpfile:
      if (Resolve(names[1]) == 0) return Error::kNotFound;
      now_[next_] = std::make_shared<ModelNode>(ModelNode{.permissions = 0600});
      descriptors_[names[0]] = next_;
      Edit(next_++);
      return Error::kOk;
    case OpKind::kClose:
      return descriptors_.erase(names[0]) == 1 ? Error::kOk : Error::kBadDescriptor;
    case OpKind::kFsync:
    case OpKind::kFdatasync:
      return Resolve(names[0]) != 0 ? Error::kOk : Error::kNotFound;
    case OpKind::kSync:
      return Error::kOk;
    case OpKind::kWrite:
    case OpKind::kAppend:
    case OpKind::kMmap:
    case OpKind::kTruncate:
    case OpKind::kFallocate:
    case OpKind::kFallocateKeep:
    case OpKind::kPunch:
    case OpKind::kZero:
    case OpKind::kChmod:
      return PerformData(operation);
    default:
      return PerformNames(operation);
  }
}

Error History::PerformNames(const Operation& operation) {
  const std::vector<std::string>& names = operation.names;
  switch (operation.kind) {
    case OpKind::kCreate:
      return Add(names[0], {.type = NodeType::kFile, .permissions = 0644, .links = 1});
    case OpKind::kMkdir:
      return Add(names[0], {.type = NodeType::kDirectory, .permissions = 0755, .links = 2});
    case OpKind::kSymlink:
      return Add(
          names[0],
          {.type = NodeType::kSymlink, .permissions = 0777, .links = 1, .content = names[1]});
    case OpKind::kLink:
      return Link(names[0], names[1]);
    case OpKind::kUnlink:
    case OpKind::kRmdir:
      return Remove(names[0], operation.kind == OpKind::kRmdir);
    case OpKind::kRename:
    case OpKind::kExchange:
      return Rename(names[0], names[1], operation.kind == OpKind::kExchange);
    default:
      return Error::kNotImplemented;
  }
}

Error History::PerformData(const Operation& operation) {
  const std::string& path = operation.names[0];
  const NodeId id = Resolve(path);
  if (id == 0) return Error::kNotFound;
  switch (operation.kind) {
    case OpKind::kWrite:
      return Write(path, operation.offset, operation.value);
    case OpKind::kAppend:
      return Write(path, Get(id).content.size(), operation.value);
    case OpKind::kMmap:
      // Behind the end's page is SIGBUS, behind the end itself nothing that would stay.
      if (operation.offset + operation.value > Get(id).content.size()) return Error::kInvalid;
      return Write(path, operation.offset, operation.value);
    case OpKind::kFallocate:
    case OpKind::kFallocateKeep:
    case OpKind::kPunch:
    case OpKind::kZero:
      return Allocate(operation);
    case OpKind::kTruncate:
      return Truncate(path, operation.value);
    case OpKind::kChmod:
      Edit(id, false)->permissions = static_cast<uint16_t>(operation.value);
      return Error::kOk;
    default:
      return Error::kNotImplemented;
  }
}

Error History::Add(const std::string& path, ModelNode node) {
  const NodeId parent = Resolve(DirectoryOf(path));
  if (parent == 0) return Error::kNotFound;
  if (Get(parent).type != NodeType::kDirectory) return Error::kNotDirectory;
  ModelNode* const directory = Edit(parent);
  if (!directory->entries.emplace(NameOf(path), next_).second) return Error::kExists;
  if (node.type == NodeType::kDirectory) ++directory->links;
  now_[next_] = std::make_shared<ModelNode>(std::move(node));
  Edit(next_++);
  return Error::kOk;
}

Error History::Link(const std::string& path, const std::string& to) {
  const NodeId id = Resolve(path);
  const NodeId parent = Resolve(DirectoryOf(to));
  if (id == 0 || parent == 0) return Error::kNotFound;
  if (Get(id).type == NodeType::kDirectory) return Error::kNotPermitted;
  if (!Edit(parent)->entries.emplace(NameOf(to), id).second) return Error::kExists;
  ++Edit(id, false)->links;
  return Error::kOk;
}

Error History::Remove(const std::string& path, bool directory) {
  const NodeId id = Resolve(path);
  if (id == 0) return Error::kNotFound;
  const bool is_directory = Get(id).type == NodeType::kDirectory;
  if (directory != is_directory) return directory ? Error::kNotDirectory : Error::kIsDirectory;
  if (!Get(id).entries.empty()) return Error::kNotEmpty;
  ModelNode* const parent = Edit(Resolve(DirectoryOf(path)));
  parent->entries.erase(NameOf(path));
  ModelNode* const node = Edit(id, false);
  if (directory) {
    --parent->links;
    node->links = 0;
  } else {
    --node->links;
  }
  return Error::kOk;
}

bool History::IsAbove(NodeId above, NodeId below) const {
  if (above == below) return true;
  const auto& entries = Get(above).entries;
  return std::any_of(entries.begin(), entries.end(),
                     [&](const auto& entry) { return IsAbove(entry.second, below); });
}

Error History::Rename(const std::string& from, const std::string& to, bool exchange) {
  const NodeId source = Resolve(from);
  const NodeId target = Resolve(to);
  const NodeId from_parent = Resolve(DirectoryOf(from));
  const NodeId to_parent = Resolve(DirectoryOf(to));
  if (source == 0 || to_parent == 0 || (exchange && target == 0)) return Error::kNotFound;
  if (source == target) return Error::kOk;
  if (IsAbove(source, to_parent)) return Error::kInvalid;
  const bool source_directory = Get(source).type == NodeType::kDirectory;
  const bool target_directory = target != 0 && Get(target).type == NodeType::kDirectory;
  if (target != 0 && !exchange) {
    if (source_directory != target_directory) return Error::kNotDirectory;
    if (!Get(target).entries.empty()) return Error::kNotEmpty;
  }
  Edit(from_parent)->entries.erase(NameOf(from));
  Edit(to_parent)->entries[NameOf(to)] = source;
  Edit(source, false);
  if (source_directory) {
    --Edit(from_parent)->links;
    ++Edit(to_parent)->links;
  }
  if (target == 0) return Error::kOk;
  ModelNode* const replaced = Edit(target, false);
  if (target_directory) --Edit(to_parent)->links;
  if (exchange) {
    Edit(from_parent)->entries[NameOf(from)] = target;
    if (target_directory) ++Edit(from_parent)->links;
  } else {
    replaced->links = target_directory ? 0 : replaced->links - 1;
  }
  return Error::kOk;
}

Error History::Write(const std::string& path, uint64_t offset, uint64_t length) {
  const NodeId id = Resolve(path);
  if (Get(id).type != NodeType::kFile) return Error::kInvalid;
  const std::string& old = Get(id).content;
  // A write that moves the size or fills a hole changes what fdatasync makes durable. A hole is
  // taken for written data here: then the promise is the weaker one.
  const bool grows = offset + length > old.size();
  std::string& content = Edit(id, grows)->content;
  if (grows) content.resize(offset + length, '\0');
  content.replace(offset, length, Pattern(id, patterns_ + states_.size(), offset, length));
  written_.back() = id;
  return Error::kOk;
}

// Each kind is a change of the inode, even where nothing is to be seen of it. Zeroing within mapped
// blocks is an overwrite: fdatasync need not commit for it. All zeroing is taken for that here: the
// promise is the weaker one.
Error History::Allocate(const Operation& operation) {
  const NodeId id = Resolve(operation.names[0]);
  if (Get(id).type != NodeType::kFile) return Error::kInvalid;
  const uint64_t end = operation.offset + operation.value;
  const bool zeroes = operation.kind == OpKind::kPunch || operation.kind == OpKind::kZero;
  const bool grows = operation.kind == OpKind::kFallocate || operation.kind == OpKind::kZero;
  std::string& content = Edit(id, grows && end > Get(id).content.size())->content;
  if (grows && end > content.size()) content.resize(end, '\0');
  if (zeroes && operation.offset < content.size()) {
    const size_t length = std::min<uint64_t>(operation.value, content.size() - operation.offset);
    content.replace(operation.offset, length, length, '\0');
  }
  written_.back() = id;
  return Error::kOk;
}

Error History::Truncate(const std::string& path, uint64_t size) {
  const NodeId id = Resolve(path);
  if (Get(id).type != NodeType::kFile) return Error::kInvalid;
  Edit(id)->content.resize(size, '\0');
  return Error::kOk;
}

}  // namespace sluice::crash
