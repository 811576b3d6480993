// SPDX-License-Identifier: Apache-2.0
#include "mkfs/size_text.h"

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {

std::optional<uint64_t> ParseSize(std::string_view text, uint64_t unit) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  const std::string suffix = absl::AsciiStrToLower(std::string(rest, end));
  uint64_t factor = unit;
  if (!suffix.empty()) {
    const size_t power = std::string_view("kmgtp").find(suffix[0]);
    const std::string_view tail = std::string_view(suffix).substr(1);
    if (power == std::string_view::npos || !(tail.empty() || tail == "b" || tail == "ib")) {
      return std::nullopt;
    }
    factor = uint64_t{1} << (10 * (power + 1));
  }
  if (number > static_cast<uint64_t>(INT64_MAX) / factor) return std::nullopt;
  return number * factor;
}

std::string SizeText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  std::string number = absl::StrFormat("%.2f", value);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return absl::StrCat(number, " ", kUnits[unit]);
}

}  // namespace sluice
