// SPDX-License-Identifier: Apache-2.0
//
// What a filesystem should look like after each operation of a workload, and what it has promised
// by then. The whole of it is kept: a crash may show any moment since the last promise.
#ifndef SLUICE_TESTS_CRASH_MODEL_H_
#define SLUICE_TESTS_CRASH_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tests/crash/operation.h"

namespace sluice::crash {

using NodeId = int;  // never reused within a history
inline constexpr NodeId kRootId = 1;

enum class NodeType : uint8_t { kFile, kDirectory, kSymlink };

struct ModelNode {
  NodeType type = NodeType::kFile;
  uint16_t permissions = 0;
  uint32_t links = 0;
  std::string content;                    // files: the bytes; symlinks: the target
  std::map<std::string, NodeId> entries;  // directories
};

// One moment. Nodes are shared between moments and never change.
using ModelState = std::map<NodeId, std::shared_ptr<const ModelNode>>;

// What must survive a crash from some moment on.
struct Promise {
  // The namespace is that of this moment or of a later one.
  size_t metadata = 0;
  // The file's data is that of this moment or of later ones (absent: of its creation).
  std::map<NodeId, size_t> data;
};

// Moments are numbered: 0 is before the first operation, i after the i-th.
class History {
 public:
  // Files get numbers from `first` on, so that those of two histories can be told apart.
  explicit History(NodeId first = kRootId + 1);

  // Performs the operation as the next moment. An error (nothing was done, there is no new moment)
  // says that the workload is wrong.
  Error Apply(const Operation& operation);
  // Everything of the last moment that a commit makes durable is so, by other means than an
  // operation: the namespace, not the data of overwrites.
  void Committed() { promises_.back().metadata = last(); }

  // Forgets how the present moment came about: it becomes moment 0, and durable.
  void StartHere();

  size_t last() const { return states_.size() - 1; }
  const ModelState& state(size_t moment) const { return states_[moment]; }
  // What has been promised when operation `moment` has returned.
  const Promise& promise(size_t moment) const { return promises_[moment]; }
  // The operation that led to the moment (from 1).
  const Operation& operation(size_t moment) const { return operations_[moment - 1]; }
  // The file that it wrote to; 0 if it was no write.
  NodeId written(size_t moment) const { return written_[moment]; }

  // What the write operation of moment `moment` writes: self-describing, so that bytes of another
  // file, place or time are recognised.
  static std::string Pattern(NodeId file, size_t moment, uint64_t offset, uint64_t length);
  // Says for a person whose bytes these are; `offset` is that of the first in its file.
  static std::string DescribeBytes(std::string_view bytes, uint64_t offset);

  // Of the last moment; 0: not there.
  NodeId Resolve(const std::string& path) const;

 private:
  struct Change {
    size_t any = 0;   // the last moment in which the inode changed
    size_t data = 0;  // and in which that mattered to fdatasync
  };

  Error Perform(const Operation& operation);
  Error PerformNames(const Operation& operation);
  Error PerformData(const Operation& operation);
  Error Add(const std::string& path, ModelNode node);
  Error Link(const std::string& path, const std::string& to);
  Error Remove(const std::string& path, bool directory);
  Error Rename(const std::string& from, const std::string& to, bool exchange);
  Error Write(const std::string& path, uint64_t offset, uint64_t length);
  Error Allocate(const Operation& operation);
  Error Truncate(const std::string& path, uint64_t size);
  void Persist(const Operation& operation);

  ModelNode* Edit(NodeId id, bool data = true);
  const ModelNode& Get(NodeId id) const { return *now_.at(id); }
  bool IsAbove(NodeId above, NodeId below) const;

  ModelState now_;
  std::vector<ModelState> states_;
  std::vector<Promise> promises_;
  std::vector<Operation> operations_;
  std::vector<NodeId> written_;
  std::map<NodeId, Change> changes_;
  std::map<std::string, NodeId> descriptors_;
  NodeId next_;
  size_t patterns_ = 0;  // moments forgotten by StartHere: versions stay unique
};

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_MODEL_H_
