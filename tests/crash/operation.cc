// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/operation.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/str_split.h"

namespace sluice::crash {
namespace {

struct Form {
  const char* verb;
  OpKind kind;
  size_t names;
  size_t numbers;
};

constexpr Form kForms[] = {
    {"create", OpKind::kCreate, 1, 0},
    {"mkdir", OpKind::kMkdir, 1, 0},
    {"symlink", OpKind::kSymlink, 2, 0},
    {"link", OpKind::kLink, 2, 0},
    {"unlink", OpKind::kUnlink, 1, 0},
    {"rmdir", OpKind::kRmdir, 1, 0},
    {"rename", OpKind::kRename, 2, 0},
    {"exchange", OpKind::kExchange, 2, 0},
    {"write", OpKind::kWrite, 1, 2},
    {"append", OpKind::kAppend, 1, 1},
    {"mmap", OpKind::kMmap, 1, 2},
    {"fallocate", OpKind::kFallocate, 1, 2},
    {"fallocate_keep", OpKind::kFallocateKeep, 1, 2},
    {"punch", OpKind::kPunch, 1, 2},
    {"zero", OpKind::kZero, 1, 2},
    {"truncate", OpKind::kTruncate, 1, 1},
    {"chmod", OpKind::kChmod, 1, 1},
    {"open", OpKind::kOpen, 2, 0},
    {"tmpfile", OpKind::kTmpfile, 2, 0},
    {"close", OpKind::kClose, 1, 0},
    {"fsync", OpKind::kFsync, 1, 0},
    {"fdatasync", OpKind::kFdatasync, 1, 0},
    {"sync", OpKind::kSync, 0, 0},
};

std::optional<Operation> ParseOperation(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (words.empty()) return std::nullopt;
  const Form* const form = std::find_if(std::begin(kForms), std::end(kForms),
                                        [&](const Form& f) { return words[0] == f.verb; });
  if (form == std::end(kForms)) return std::nullopt;
  if (words.size() != 1 + form->names + form->numbers) return std::nullopt;
  Operation operation{.kind = form->kind, .names = {}, .text = {}};
  operation.names.assign(words.begin() + 1,
                         words.begin() + 1 + static_cast<std::ptrdiff_t>(form->names));
  uint64_t* into = form->numbers == 2 ? &operation.offset : &operation.value;
  for (size_t i = 1 + form->names; i < words.size(); ++i, into = &operation.value) {
    const char* const end = words[i].data() + words[i].size();
    const int base = form->kind == OpKind::kChmod ? 8 : 10;
    const auto parsed = std::from_chars(words[i].data(), end, *into, base);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  }
  for (const std::string& word : words) {
    operation.text += (operation.text.empty() ? "" : " ") + word;
  }
  return operation;
}

}  // namespace

std::optional<std::vector<Operation>> ParseWorkload(std::string_view text) {
  std::vector<Operation> operations;
  const std::vector<std::string> steps =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ';');
  for (const std::string& step : steps) {
    if (step.find_first_not_of(" \n") == std::string::npos) continue;
    std::optional<Operation> operation = ParseOperation(step);
    if (!operation) return std::nullopt;
    operations.push_back(std::move(*operation));
  }
  return operations;
}

std::string DirectoryOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "/" : std::string(path.substr(0, slash));
}

std::string NameOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::vector<std::string> Components(std::string_view path) {
  return absl::StrSplit(absl::string_view(path.data(), path.size()), '/', absl::SkipEmpty());
}

}  // namespace sluice::crash
