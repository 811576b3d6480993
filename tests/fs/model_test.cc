// SPDX-License-Identifier: Apache-2.0
//
// Random operations on names, compared with a simple model in memory, with remounts, crashes after
// a sync, few inodes and buffers in memory, and with threads at once.
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::Files;
using testing_support::FsTest;

struct ModelNode {
  bool directory = false;
  uint32_t links = 0;  // files
  std::map<std::string, std::shared_ptr<ModelNode>> names;
};
using ModelRef = std::shared_ptr<ModelNode>;

class ModelTest : public FsTest {
 protected:
  ModelTest() {
    options_.metadata_cache_blocks = 64;
    root_ = std::make_shared<ModelNode>();
    root_->directory = true;
  }

  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  std::string RandomName() {
    return "n" + std::to_string(Random(12)) + std::string(Random(60), 'y');
  }

  // A random directory: the model's and ours.
  std::pair<ModelRef, InodeRef> RandomDirectory() {
    ModelRef model = root_;
    InodeRef inode = files().Root();
    for (int depth = 0; depth < 3 && !model->names.empty() && Random(3) != 0; ++depth) {
      auto at = model->names.begin();
      std::advance(at, Random(static_cast<uint32_t>(model->names.size())));
      if (!at->second->directory) break;
      const Result<InodeRef> found = files().Lookup(inode, at->first);
      EXPECT_TRUE(found.ok());
      inode = *found;
      model = at->second;
    }
    return {model, inode};
  }

  std::string NameIn(const ModelRef& directory) {
    if (directory->names.empty() || Random(4) == 0) return RandomName();
    auto at = directory->names.begin();
    std::advance(at, Random(static_cast<uint32_t>(directory->names.size())));
    return at->first;
  }
  static ModelRef Find(const ModelRef& directory, const std::string& name) {
    const auto found = directory->names.find(name);
    return found == directory->names.end() ? nullptr : found->second;
  }
  static bool Contains(const ModelRef& above, const ModelRef& below) {
    if (above == below) return true;
    for (const auto& [name, child] : above->names) {
      if (child->directory && Contains(child, below)) return true;
    }
    return false;
  }

  void Make(bool directory) {
    auto [model, inode] = RandomDirectory();
    const std::string name = RandomName();
    const Result<InodeRef> made =
        directory ? files().Mkdir(inode, name) : files().Create(inode, name);
    if (Find(model, name) != nullptr) {
      EXPECT_EQ(made.error(), Error::kExists);
      return;
    }
    ASSERT_TRUE(made.ok());
    auto node = std::make_shared<ModelNode>();
    node->directory = directory;
    node->links = 1;
    model->names[name] = node;
  }

  void Remove() {
    auto [model, inode] = RandomDirectory();
    const std::string name = NameIn(model);
    const ModelRef node = Find(model, name);
    const bool rmdir = node != nullptr && node->directory ? Random(8) != 0 : Random(8) == 0;
    const Error error = rmdir ? files().Rmdir(inode, name) : files().Unlink(inode, name);
    if (node == nullptr) {
      EXPECT_EQ(error, Error::kNotFound);
    } else if (node->directory != rmdir) {
      EXPECT_EQ(error, rmdir ? Error::kNotDirectory : Error::kIsDirectory);
    } else if (rmdir && !node->names.empty()) {
      EXPECT_EQ(error, Error::kNotEmpty);
    } else {
      ASSERT_EQ(error, Error::kOk);
      --node->links;
      model->names.erase(name);
    }
  }

  void Link() {
    auto [from, from_inode] = RandomDirectory();
    auto [to, to_inode] = RandomDirectory();
    const std::string old_name = NameIn(from);
    const ModelRef node = Find(from, old_name);
    if (node == nullptr || node->directory) return;
    const std::string name = RandomName();
    const InodeRef file = files().Lookup(from_inode, old_name).value();
    const Error error = files().Link(file, to_inode, name);
    if (Find(to, name) != nullptr) {
      EXPECT_EQ(error, Error::kExists);
      return;
    }
    ASSERT_EQ(error, Error::kOk);
    ++node->links;
    to->names[name] = node;
  }

  Error RenameInModel(const ModelRef& from, const std::string& a, const ModelRef& to,
                      const std::string& b) {
    const ModelRef source = Find(from, a);
    const ModelRef target = Find(to, b);
    if (source == nullptr) return Error::kNotFound;
    if (source == target) return Error::kOk;
    if (source->directory && Contains(source, to)) return Error::kInvalid;
    if (target != nullptr) {
      if (target->directory && Contains(target, from)) return Error::kNotEmpty;
      if (source->directory && !target->directory) return Error::kNotDirectory;
      if (!source->directory && target->directory) return Error::kIsDirectory;
      if (target->directory && !target->names.empty()) return Error::kNotEmpty;
      --target->links;
    }
    from->names.erase(a);
    to->names[b] = source;
    return Error::kOk;
  }

  void Rename() {
    auto [from, from_inode] = RandomDirectory();
    auto [to, to_inode] = RandomDirectory();
    const std::string a = NameIn(from);
    const std::string b = NameIn(to);
    const Error error = files().Rename(from_inode, a, to_inode, b);
    EXPECT_EQ(error, RenameInModel(from, a, to, b)) << a << " " << b;
  }

  void Compare(const ModelRef& model, const InodeRef& inode) {
    const std::vector<Files::Name> names = files().List(inode);
    ASSERT_EQ(names.size(), model->names.size() + 2);
    uint32_t subdirectories = 0;
    for (const Files::Name& name : names) {
      if (name.name == "." || name.name == "..") continue;
      const ModelRef node = Find(model, name.name);
      ASSERT_NE(node, nullptr) << name.name;
      const InodeRef child = files().Lookup(inode, name.name).value();
      EXPECT_EQ(child->ino, name.ino);
      ASSERT_EQ(child->is_directory(), node->directory);
      if (node->directory) {
        ++subdirectories;
        Compare(node, child);
      } else {
        EXPECT_EQ(fs_->GetAttributes(child).links, node->links);
      }
    }
    EXPECT_EQ(fs_->GetAttributes(inode).links, 2 + subdirectories);
  }

  std::mt19937_64 random_{20240229};
  ModelRef root_;
};

TEST_F(ModelTest, RandomOperations) {
  for (int step = 0; step < 12'000 && !HasFatalFailure(); ++step) {
    switch (Random(8)) {
      case 0:
      case 1:
      case 2:
        Make(Random(3) == 0);
        break;
      case 3:
      case 4:
        Remove();
        break;
      case 5:
        Link();
        break;
      default:
        Rename();
    }
    if (step % 1500 == 1499) {
      Compare(root_, files().Root());
      if (step % 3000 == 2999) {
        ASSERT_EQ(fs_->Sync(), Error::kOk);
        Crash();
        Mount();
      } else {
        Remount();
      }
      Compare(root_, files().Root());
    }
  }
}

// Threads that make, move and remove names in a few directories; what is right is judged by the
// link counts and the tree afterwards (and by the sanitizers).
class StormTest : public FsTest {
 protected:
  // Directories are locked from the top down, and a rename turns the order of two of them round.
  // The detector, which remembers orders for ever, would take that for a deadlock.
  StormTest() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }
  ~StormTest() override { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort); }
};

TEST_F(StormTest, EightThreadsOfMixedOperations) {
  constexpr int kThreads = 8;
  constexpr int kSteps = 1500;
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(files().Mkdir(files().Root(), name).ok());
  std::atomic<int> surprises{0};
  const auto work = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const Files fs = files();
    const auto directory = [&] {
      InodeRef at = fs.Root();
      for (uint64_t depth = random() % 3; depth > 0; --depth) {
        const Result<InodeRef> next = fs.Lookup(at, std::string(1, "abcd"[random() % 4]));
        if (!next.ok() || !(*next)->is_directory()) break;
        at = *next;
      }
      return at;
    };
    for (int step = 0; step < kSteps; ++step) {
      const InodeRef one = directory();
      const InodeRef two = directory();
      const std::string x(1, "abcdefgh"[random() % 8]);
      const std::string y(1, "abcdefgh"[random() % 8]);
      Error error = Error::kOk;
      switch (random() % 9) {
        case 0:
          error = fs.Create(one, x).error();
          break;
        case 1:
          error = fs.Mkdir(one, x).error();
          break;
        case 2:
          error = fs.Unlink(one, x);
          break;
        case 3:
          error = fs.Rmdir(one, x);
          break;
        case 4:
          error = fs.Rename(one, x, two, y);
          break;
        case 5:
          error = fs.Rename(one, x, two, y, RenameFlags::kExchange);
          break;
        case 6:
          fs.List(one);
          break;
        case 7: {
          const Result<InodeRef> file = fs.Lookup(one, x);
          if (file.ok()) error = fs.Link(*file, two, y);
          break;
        }
        default: {
          const Result<InodeRef> file = fs.Lookup(one, x);
          if (file.ok()) fs->GetAttributes(*file);
        }
      }
      if (error == Error::kCorrupt || error == Error::kIo || error == Error::kWouldBlock ||
          error == Error::kReadOnly) {
        ++surprises;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, 77 + i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(surprises.load(), 0);
  EXPECT_FALSE(fs_->read_only());
  Remount();
  // Every directory's count of links is that of its subdirectories.
  const std::function<void(const InodeRef&, int)> walk = [&](const InodeRef& at, int depth) {
    ASSERT_LT(depth, 1000);
    uint32_t subdirectories = 0;
    for (const Files::Name& name : files().List(at)) {
      if (name.name == "." || name.name == "..") continue;
      const InodeRef child = files().Lookup(at, name.name).value();
      if (!child->is_directory()) continue;
      ++subdirectories;
      walk(child, depth + 1);
    }
    EXPECT_EQ(fs_->GetAttributes(at).links, 2 + subdirectories);
  };
  walk(files().Root(), 0);
}

}  // namespace
}  // namespace sluice
