// SPDX-License-Identifier: Apache-2.0
#include "fsck/finding.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "format/debug_string.h"

namespace sluice {

namespace {

constexpr FindingInfo kCatalogue[] = {
#define SLUICE_FINDING(number, identifier, name, severity, repair, text) \
  {FindingId::identifier, name, Severity::severity, Repair::repair, text},
#include "fsck/findings.def"
#undef SLUICE_FINDING
};

std::string Range(const char* what, uint64_t first, uint64_t count) {
  if (count <= 1) return absl::StrCat(what, " ", first);
  return absl::StrCat(what, "s ", first, "-", first + count - 1);
}

// The value of one placeholder.
std::string FieldText(const Finding& finding, std::string_view field) {
  if (field == "ino") return absl::StrCat(finding.ino);
  if (field == "other") return absl::StrCat(finding.other);
  if (field == "block") return absl::StrCat(finding.block);
  if (field == "blocks") return Range("block", finding.block, finding.count);
  if (field == "inodes") return Range("inode", finding.ino, finding.count);
  if (field == "group") return absl::StrCat(finding.group);
  if (field == "expected") return absl::StrCat(finding.expected);
  if (field == "found") return absl::StrCat(finding.found);
  if (field == "count") return absl::StrCat(finding.count);
  if (field == "text") return finding.text;
  SLUICE_CHECK(field == "name");
  return format::PrintableText(finding.name.data(), finding.name.size());
}

// Calls `literal` and `field` for the pieces of a text, in order.
void ForEachPiece(std::string_view text, const std::function<void(std::string_view)>& literal,
                  const std::function<void(std::string_view)>& field) {
  while (!text.empty()) {
    const size_t open = text.find('{');
    literal(text.substr(0, open));
    if (open == std::string_view::npos) return;
    const size_t close = text.find('}', open);
    field(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
}

void PutField(const Finding& finding, std::string_view field, nlohmann::json* json) {
  if (field == "ino") (*json)["inode"] = finding.ino;
  if (field == "other") (*json)["other_inode"] = finding.other;
  if (field == "block") (*json)["block"] = finding.block;
  if (field == "group") (*json)["group"] = finding.group;
  if (field == "expected") (*json)["expected"] = finding.expected;
  if (field == "found") (*json)["found"] = finding.found;
  if (field == "count") (*json)["count"] = finding.count;
  if (field == "text") (*json)["detail"] = finding.text;
  if (field == "name") (*json)["entry"] = FieldText(finding, field);
  if (field == "blocks" || field == "inodes") {
    (*json)[field == "blocks" ? "block" : "inode"] =
        field == "blocks" ? finding.block : finding.ino;
    (*json)["count"] = finding.count;
  }
}

}  // namespace

const FindingInfo& InfoOf(FindingId id) {
  const FindingInfo* info =
      std::find_if(std::begin(kCatalogue), std::end(kCatalogue),
                   [id](const FindingInfo& candidate) { return candidate.id == id; });
  SLUICE_CHECK(info != std::end(kCatalogue));
  return *info;
}

std::string Describe(const Finding& finding) {
  std::string line;
  ForEachPiece(
      InfoOf(finding.id).text, [&](std::string_view literal) { line.append(literal); },
      [&](std::string_view field) { line += FieldText(finding, field); });
  return line;
}

std::string ToJson(const Finding& finding) {
  const FindingInfo& info = InfoOf(finding.id);
  nlohmann::json json = {
      {"number", static_cast<uint16_t>(finding.id)},
      {"name", info.name},
      {"severity", info.severity == Severity::kError ? "error" : "note"},
      {"message", Describe(finding)},
      {"repairable", finding.repairable},
      {"repaired", finding.repaired},
  };
  ForEachPiece(
      info.text, [](std::string_view) {},
      [&](std::string_view field) { PutField(finding, field, &json); });
  if (!finding.path.empty()) {
    json["path"] = format::PrintableText(finding.path.data(), finding.path.size());
  }
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace sluice
