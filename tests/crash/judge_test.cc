// SPDX-License-Identifier: Apache-2.0
//
// The judge and the model themselves: each kind of violation is seen, and what is allowed is not
// called one.
#include "tests/crash/judge.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "block/memory_image.h"

namespace sluice::crash {
namespace {

History HistoryOf(const char* workload) {
  History history;
  const auto operations = ParseWorkload(workload);
  if (!operations) ADD_FAILURE() << "no workload: " << workload;
  for (const Operation& operation : operations.value_or(std::vector<Operation>())) {
    EXPECT_EQ(history.Apply(operation), Error::kOk) << operation.text;
  }
  return history;
}

// The tree as the filesystem shows it at a moment.
Tree TreeAt(const History& history, size_t moment) {
  Tree tree;
  for (const auto& [id, node] : history.state(moment)) {
    if (node->links == 0) continue;
    const InodeNumber ino = static_cast<InodeNumber>(id);
    TreeNode& shown = tree.nodes[ino];
    uint16_t type = S_IFREG;
    if (node->type == NodeType::kDirectory) type = S_IFDIR;
    if (node->type == NodeType::kSymlink) type = S_IFLNK;
    shown.attributes.ino = ino;
    shown.attributes.mode = static_cast<uint16_t>(type | node->permissions);
    shown.attributes.links = node->links;
    shown.attributes.size = node->content.size();
    shown.content = node->content;
    for (const auto& [name, child] : node->entries) {
      shown.entries[name] = static_cast<InodeNumber>(child);
    }
  }
  return tree;
}

constexpr InodeNumber kFirstFile = 2;

TEST(JudgeTest, EveryMomentSinceThePromiseIsAllowed) {
  const History history = HistoryOf(
      "create f; append f 5000; fsync f; rename f g; write g 0 512; symlink s g; link g h; unlink "
      "g");
  for (size_t moment = 3; moment <= history.last(); ++moment) {
    EXPECT_EQ(Judge(history, history.last(), TreeAt(history, moment)), "") << moment;
  }
  EXPECT_NE(Judge(history, history.last(), TreeAt(history, 0)), "");
  EXPECT_NE(Judge(history, history.last(), TreeAt(history, 1)), "");
}

TEST(JudgeTest, NothingFromAfterTheCrash) {
  const History history = HistoryOf("create f; create g; create h");
  EXPECT_EQ(Judge(history, 1, TreeAt(history, 2)), "");  // under way
  EXPECT_NE(Judge(history, 1, TreeAt(history, 3)), "");
}

TEST(JudgeTest, FsyncPromisesTheLastChangeNotMore) {
  const History history = HistoryOf("create f; create g; fsync f");
  EXPECT_EQ(Judge(history, 3, TreeAt(history, 1)), "");
  EXPECT_NE(Judge(history, 3, TreeAt(history, 0)), "");
}

TEST(JudgeTest, FdatasyncDoesNotPromisePermissions) {
  const History history = HistoryOf("create f; append f 10; fdatasync f; chmod f 600; fdatasync f");
  EXPECT_EQ(Judge(history, 5, TreeAt(history, 2)), "");
  EXPECT_NE(Judge(history, 5, TreeAt(history, 1)), "");
}

TEST(JudgeTest, AMixedNamespaceIsSeen) {
  const History history = HistoryOf("mkdir A; create A/f; sync; rename A/f A/g");
  Tree both = TreeAt(history, 4);
  both.nodes[2].entries["f"] = both.nodes[2].entries["g"];
  EXPECT_NE(Judge(history, 4, both), "");
  Tree neither = TreeAt(history, 4);
  neither.nodes[2].entries.clear();
  EXPECT_NE(Judge(history, 4, neither), "");
}

TEST(JudgeTest, SectorsOfDifferentMomentsAreATornOverwrite) {
  const History history = HistoryOf("create f; append f 4096; sync; write f 0 4096");
  Tree tree = TreeAt(history, 3);
  const std::string& newer = history.state(4).at(2)->content;
  tree.nodes[kFirstFile].content.replace(512, 512, newer, 512, 512);
  EXPECT_EQ(Judge(history, 4, tree), "");
  // Within a sector it is none.
  tree.nodes[kFirstFile].content.replace(0, 100, newer, 0, 100);
  EXPECT_NE(Judge(history, 4, tree), "");
}

TEST(JudgeTest, PoisonZerosAndForeignBytesAreSeen) {
  const History history = HistoryOf("create f; append f 4096; create g; append g 4096");
  const auto with = [&](const std::string& sector) {
    Tree tree = TreeAt(history, 4);
    tree.nodes[kFirstFile].content.replace(1024, sector.size(), sector);
    return Judge(history, 4, tree);
  };
  EXPECT_NE(with(std::string(512, static_cast<char>(kPoisonByte))).find("poison"),
            std::string::npos);
  EXPECT_NE(with(std::string(512, '\0')), "");
  EXPECT_NE(with(History::Pattern(3, 4, 1024, 512)).find("file 3"), std::string::npos);
  EXPECT_NE(with(History::Pattern(2, 2, 0, 512)), "");  // its own, of another place
  EXPECT_EQ(with(History::Pattern(2, 2, 1024, 512)), "");
}

TEST(JudgeTest, DataOlderThanItsFsyncIsSeen) {
  const History history = HistoryOf("create f; append f 600; sync; write f 0 600; fdatasync f");
  Tree tree = TreeAt(history, 5);
  tree.nodes[kFirstFile].content = history.state(2).at(2)->content;
  EXPECT_NE(Judge(history, 5, tree), "");
  EXPECT_EQ(Judge(history, 4, tree), "");
}

TEST(JudgeTest, ASizeShowsNoBytesFromBeforeItReachedThem) {
  const History history = HistoryOf("create f; append f 2048; truncate f 0; sync; append f 2048");
  Tree tree = TreeAt(history, 5);
  EXPECT_EQ(Judge(history, 5, tree), "");
  tree.nodes[kFirstFile].content = history.state(2).at(2)->content;
  EXPECT_NE(Judge(history, 5, tree), "");
}

TEST(JudgeTest, LinkCountsAndHardLinksMatter) {
  const History history = HistoryOf("create f; link f g");
  Tree tree = TreeAt(history, 2);
  EXPECT_EQ(Judge(history, 2, tree), "");
  Tree split = tree;
  split.nodes[9] = split.nodes[kFirstFile];
  split.nodes[1].entries["g"] = 9;
  EXPECT_NE(Judge(history, 2, split), "");
  tree.nodes[kFirstFile].attributes.links = 1;
  EXPECT_NE(Judge(history, 2, tree), "");
}

TEST(WorkloadTextTest, RefusesWhatItDoesNotKnow) {
  EXPECT_FALSE(ParseWorkload("collapse f 0 100").has_value());
  EXPECT_FALSE(ParseWorkload("create").has_value());
  EXPECT_FALSE(ParseWorkload("write f 0 x").has_value());
  EXPECT_EQ(ParseWorkload("create f; sync;").value().size(), 2u);
}

TEST(ModelTest, ReportsErrorsAndChangesNothing) {
  History history = HistoryOf("mkdir A; create A/f");
  for (const char* wrong : {"create A/f", "rmdir A", "unlink A", "unlink x", "rename A A/B",
                            "link A B", "exchange A B", "append A 1"}) {
    EXPECT_NE(history.Apply(ParseWorkload(wrong).value()[0]), Error::kOk) << wrong;
  }
  EXPECT_EQ(history.last(), 2u);
  EXPECT_EQ(Judge(history, 2, TreeAt(history, 2)), "");
}

}  // namespace
}  // namespace sluice::crash
