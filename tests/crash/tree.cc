// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/tree.h"

#include <sys/stat.h>
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/crash/model.h"
#include "tests/support/fs_fixture.h"

namespace sluice::crash {
namespace {

using testing_support::Files;

constexpr uint64_t kMaxFile = uint64_t{4} << 20;  // no workload makes larger ones

class Reader {
 public:
  Reader(Filesystem* fs, Tree* tree) : fs_(fs), files_(fs), tree_(tree) {}

  std::string Read(const InodeRef& inode, const std::string& path) {
    const auto [at, fresh] = tree_->nodes.try_emplace(inode->ino);
    if (!fresh) return inode->is_directory() ? absl::StrCat(path, ": a directory twice") : "";
    TreeNode& node = at->second;
    node.attributes = fs_->GetAttributes(inode);
    if (inode->is_directory()) return ReadDirectory(inode, path, &node);
    if (inode->is_symlink()) return Take(files_.Readlink(inode), path, &node.content);
    if (node.attributes.size > kMaxFile) {
      return absl::StrCat(path, ": size ", node.attributes.size);
    }
    const std::string problem =
        Take(files_.Read(inode, 0, node.attributes.size), path, &node.content);
    if (!problem.empty()) return problem;
    if (node.content.size() == node.attributes.size) return "";
    return absl::StrCat(path, ": ", node.content.size(), " bytes of ", node.attributes.size);
  }

 private:
  static std::string Take(Result<std::string> got, const std::string& path, std::string* into) {
    if (!got.ok()) return absl::StrCat(path, ": ", std::string(ErrorText(got.error())));
    *into = std::move(got).value();
    return "";
  }

  std::string ReadDirectory(const InodeRef& inode, const std::string& path, TreeNode* node) {
    for (const Files::Name& name : files_.List(inode)) {
      if (name.name == "." || name.name == "..") continue;
      const std::string child_path = path + "/" + name.name;
      if (!node->entries.emplace(name.name, name.ino).second) return child_path + ": twice";
      const Result<InodeRef> child = files_.Lookup(inode, name.name);
      if (!child.ok()) {
        return absl::StrCat(child_path, ": ", std::string(ErrorText(child.error())));
      }
      if ((*child)->ino != name.ino) return child_path + ": lookup and readdir differ";
      const std::string problem = Read(*child, child_path);
      if (!problem.empty()) return problem;
    }
    return "";
  }

  Filesystem* const fs_;
  const Files files_;
  Tree* const tree_;
};

void DescribeNode(const Tree& tree, const std::string& path, InodeNumber ino, std::string* text) {
  const TreeNode& node = tree.nodes.at(ino);
  const Attributes& a = node.attributes;
  absl::StrAppendFormat(text, "  %s: inode %d mode %o links %d size %d", path, ino, a.mode, a.links,
                        a.size);
  if (S_ISLNK(a.mode)) absl::StrAppend(text, " -> ", node.content);
  if (S_ISREG(a.mode)) {
    absl::StrAppend(text, " [", History::DescribeBytes(node.content, 0), "]");
  }
  absl::StrAppend(text, "\n");
  for (const auto& [name, child] : node.entries) {
    DescribeNode(tree, path == "/" ? "/" + name : path + "/" + name, child, text);
  }
}

}  // namespace

std::string ReadTree(Filesystem* fs, Tree* tree) {
  return Reader(fs, tree).Read(Files(fs).Root(), "");
}

std::string Fingerprint(const Tree& tree) {
  std::string text;
  for (const auto& [ino, node] : tree.nodes) {
    const Attributes& a = node.attributes;
    absl::StrAppend(&text, ino, " ", a.generation, " ", a.mode, " ", a.links, " ", a.size, " ",
                    XXH3_64bits(node.content.data(), node.content.size()));
    for (const auto& [name, child] : node.entries) absl::StrAppend(&text, " ", name, "=", child);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Describe(const Tree& tree) {
  std::string text;
  if (tree.nodes.contains(format::kRootInode)) {
    DescribeNode(tree, "/", format::kRootInode, &text);
  }
  return text;
}

}  // namespace sluice::crash
