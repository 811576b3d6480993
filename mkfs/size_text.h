// SPDX-License-Identifier: Apache-2.0
//
// Sizes as people type them.
#ifndef SLUICE_MKFS_SIZE_TEXT_H_
#define SLUICE_MKFS_SIZE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Bytes of "64m", "2G", "15TiB", "4096k": digits and K, M, G, T or P (powers of 1024, either case,
// "iB" or "B" may follow). A number alone counts `unit` bytes. nullopt for anything else and for
// what does not fit into 63 bits.
std::optional<uint64_t> ParseSize(std::string_view text, uint64_t unit);

// "2 GiB", "1.5 TiB", "16 MiB".
std::string SizeText(uint64_t bytes);

}  // namespace sluice

#endif  // SLUICE_MKFS_SIZE_TEXT_H_
