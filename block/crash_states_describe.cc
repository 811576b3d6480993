// SPDX-License-Identifier: Apache-2.0
//
// A crash state in words.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "block/crash_states.h"

namespace sluice {
namespace {

std::string MaskText(const std::vector<bool>& mask) {
  std::string text;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    size_t end = i;
    while (end + 1 < mask.size() && mask[end + 1]) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", i);
    if (end > i) absl::StrAppend(&text, "-", end);
    i = end;
  }
  return text;
}

}  // namespace

std::vector<CrashStates::Unflushed> CrashStates::Describe() const {
  std::vector<Unflushed> writes;
  for (const Pending& pending : pending_) {
    const auto part = std::find_if(parts_.begin(), parts_.end(),
                                   [&pending](const Part& p) { return p.write == pending.write; });
    std::string what = "lost";
    if (part != parts_.end() && part->mask.empty()) what = "there";
    if (part != parts_.end() && !part->mask.empty()) {
      what =
          absl::StrCat("torn, there are sectors ", MaskText(part->mask), " of ", part->mask.size());
    }
    writes.push_back({pending.write, std::move(what)});
  }
  return writes;
}

}  // namespace sluice
