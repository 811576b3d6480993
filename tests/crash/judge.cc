// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/judge.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::crash {
namespace {

uint16_t TypeBits(NodeType type) {
  switch (type) {
    case NodeType::kFile:
      return S_IFREG;
    case NodeType::kDirectory:
      return S_IFDIR;
    case NodeType::kSymlink:
      break;
  }
  return S_IFLNK;
}

const ModelNode* NodeAt(const ModelState& state, NodeId id) {
  const auto found = state.find(id);
  return found == state.end() ? nullptr : found->second.get();
}

// Compares a tree with one moment.
class Comparison {
 public:
  Comparison(const History& history, size_t moment, size_t latest, const Promise& promise,
             const Tree& tree)
      : history_(history),
        moment_(moment),
        latest_(latest),
        promise_(promise),
        tree_(tree),
        state_(history.state(moment)) {}

  std::string Names() { return CompareNames(kRootId, format::kRootInode, "/"); }

  std::string Data() const {
    for (const auto& [id, ino] : inodes_) {
      if (state_.at(id)->type != NodeType::kFile) continue;
      std::string problem = CompareData(id, tree_.nodes.at(ino));
      if (!problem.empty()) return problem;
    }
    return "";
  }

 private:
  std::string CompareNames(NodeId id, InodeNumber ino, const std::string& path) {
    const auto [known, fresh] = inodes_.emplace(id, ino);
    if (!fresh) return known->second == ino ? "" : path + ": another inode than its other name";
    if (!ids_.emplace(ino, id).second) return path + ": the inode of another file";
    const ModelNode& model = *state_.at(id);
    const TreeNode& node = tree_.nodes.at(ino);
    std::string problem = CompareAttributes(id, model, node, path);
    if (!problem.empty()) return problem;
    for (const auto& [name, child] : model.entries) {
      const std::string child_path = (path == "/" ? "" : path) + "/" + name;
      const auto found = node.entries.find(name);
      if (found == node.entries.end()) return child_path + ": missing";
      problem = CompareNames(child, found->second, child_path);
      if (!problem.empty()) return problem;
    }
    for (const auto& [name, child] : node.entries) {
      if (!model.entries.contains(name)) return absl::StrCat(path, ": has \"", name, "\"");
    }
    return "";
  }

  std::string CompareAttributes(NodeId id, const ModelNode& model, const TreeNode& node,
                                const std::string& path) const {
    const Attributes& a = node.attributes;
    if (a.mode != (TypeBits(model.type) | model.permissions)) {
      return absl::StrFormat("%s: mode %o", path, a.mode);
    }
    if (a.links != model.links) {
      return absl::StrCat(path, ": ", a.links, " links instead of ", model.links);
    }
    if (model.type == NodeType::kSymlink && node.content != model.content) {
      return path + ": another target";
    }
    if (model.type == NodeType::kFile && !SizeAllowed(id, model.content.size(), a.size)) {
      return absl::StrCat(path, ": size ", a.size, " instead of ", model.content.size());
    }
    return "";
  }

  bool SizeAllowed(NodeId id, uint64_t expected, uint64_t size) const {
    if (size == expected) return true;
    if (moment_ == 0 || history_.written(moment_) != id || size % kBlockSize != 0) return false;
    const ModelNode* const before = NodeAt(history_.state(moment_ - 1), id);
    return before != nullptr && before->content.size() < size && size < expected;
  }

  std::string CompareData(NodeId id, const TreeNode& node) const {
    const std::string_view found = node.content;
    for (uint64_t at = 0; at < found.size(); at += kSectorSize) {
      const std::string_view sector = found.substr(at, kSectorSize);
      if (SectorAllowed(id, at, sector)) continue;
      return absl::StrFormat("inode %d (file %d): at %d: %s; allowed since moment %d",
                             node.attributes.ino, id, at, History::DescribeBytes(sector, at),
                             OldestFor(id, at + sector.size()));
    }
    return "";
  }

  // The earliest moment whose bytes before `end` may be seen.
  size_t OldestFor(NodeId id, uint64_t end) const {
    size_t oldest = moment_;
    for (; oldest > 0; --oldest) {
      const ModelNode* const before = NodeAt(history_.state(oldest - 1), id);
      if (before == nullptr || before->content.size() < end) break;
    }
    const auto promised = promise_.data.find(id);
    return promised == promise_.data.end() ? oldest : std::max(oldest, promised->second);
  }

  bool SectorAllowed(NodeId id, uint64_t at, std::string_view sector) const {
    const size_t oldest = OldestFor(id, at + sector.size());
    for (size_t moment = latest_ + 1; moment-- > oldest;) {
      const ModelNode* const node = NodeAt(history_.state(moment), id);
      if (node != nullptr && Equals(node->content, at, sector)) return true;
    }
    return false;
  }

  // Whether the content reads so at `at`, with zeros behind its end.
  static bool Equals(std::string_view content, uint64_t at, std::string_view sector) {
    const std::string_view have = at < content.size() ? content.substr(at, sector.size()) : "";
    return sector.substr(0, have.size()) == have &&
           sector.find_first_not_of('\0', have.size()) == std::string_view::npos;
  }

  const History& history_;
  const size_t moment_;
  const size_t latest_;
  const Promise& promise_;
  const Tree& tree_;
  const ModelState& state_;
  std::map<NodeId, InodeNumber> inodes_;
  std::map<InodeNumber, NodeId> ids_;
};

}  // namespace

std::string Judge(const History& history, size_t returned, const Tree& tree) {
  const Promise& promise = history.promise(returned);
  const size_t latest = std::min(returned + 1, history.last());
  std::string problems;
  for (size_t moment = promise.metadata; moment <= latest; ++moment) {
    Comparison comparison(history, moment, latest, promise, tree);
    std::string problem = comparison.Names();
    if (problem.empty()) problem = comparison.Data();
    if (problem.empty()) return "";
    absl::StrAppend(&problems, "\n  not moment ", moment,
                    moment == 0 ? std::string() : " (" + history.operation(moment).text + ")", ": ",
                    problem);
  }
  return absl::StrCat("no allowed moment (", promise.metadata, " promised, ", returned,
                      " returned) looks like this:", problems, "\nthere is:\n", Describe(tree));
}

}  // namespace sluice::crash
