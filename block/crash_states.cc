// SPDX-License-Identifier: Apache-2.0
#include "block/crash_states.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace sluice {
namespace {

using EventKind = CrashLog::EventKind;
using Sector = std::array<std::byte, kSectorSize>;

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr unsigned kMaxExhaustive = 20;
constexpr uint64_t kMaxCuts = 16;  // where a long write is torn, besides the random places
constexpr char kTokenVersion[] = "c1";

size_t SectorsOf(const CrashLog::Write& write) { return write.length / kSectorSize; }

// The contents of a write's sector; a discard leaves poison.
const std::byte* SectorData(const CrashLog::Write& write, size_t sector, const Sector& poison) {
  return write.data.empty() ? poison.data() : write.data.data() + sector * kSectorSize;
}

uint64_t HashSector(uint64_t number, const std::byte* data) {
  return XXH3_64bits_withSeed(data, kSectorSize, number);
}

Sector SectorOf(const MemoryImage& image, uint64_t number) {
  Sector sector;
  image.Read(number * kSectorSize, sector);
  return sector;
}

Sector Poison(const MemoryImage& image) {
  Sector sector;
  sector.fill(image.fill());
  return sector;
}

// Puts the write, or the sectors of it that `mask` has, into the image. Whole blocks are shared
// with the log instead of copied.
void Apply(const std::shared_ptr<const CrashLog::Write>& write, const std::vector<bool>& mask,
           MemoryImage* image) {
  const Sector poison = Poison(*image);
  const uint64_t first = write->offset / kSectorSize;
  constexpr size_t kPerBlock = kBlockSize / kSectorSize;
  const size_t sectors = SectorsOf(*write);
  for (size_t i = 0; i < sectors;) {
    const bool whole_block = mask.empty() && !write->data.empty() && (first + i) % kPerBlock == 0 &&
                             i + kPerBlock <= sectors;
    if (whole_block) {
      const std::byte* const bytes = write->data.data() + i * kSectorSize;
      image->Adopt((first + i) / kPerBlock,
                   std::shared_ptr<const MemoryImage::Block>(
                       write, reinterpret_cast<const MemoryImage::Block*>(bytes)));
      i += kPerBlock;
      continue;
    }
    if (mask.empty() || mask[i]) {
      image->Write((first + i) * kSectorSize, {SectorData(*write, i, poison), kSectorSize});
    }
    ++i;
  }
}

std::string HexOf(const std::vector<bool>& mask) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < mask.size(); i += 4) {
    unsigned digit = 0;
    for (size_t bit = 0; bit < 4 && i + bit < mask.size(); ++bit) {
      digit |= static_cast<unsigned>(mask[i + bit]) << bit;
    }
    text.push_back(kDigits[digit]);
  }
  return text;
}

bool ParseNumber(std::string_view text, int base, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseMask(std::string_view text, size_t sectors, std::vector<bool>* mask) {
  if (text.size() != (sectors + 3) / 4) return false;
  mask->assign(sectors, false);
  for (size_t i = 0; i < text.size(); ++i) {
    uint64_t digit = 0;
    if (!ParseNumber(text.substr(i, 1), 16, &digit)) return false;
    for (size_t bit = 0; bit < 4 && i * 4 + bit < sectors; ++bit) {
      (*mask)[i * 4 + bit] = (digit >> bit & 1) != 0;
    }
  }
  return true;
}

}  // namespace

CrashStates::CrashStates(const CrashLog& log, const CrashOptions& options)
    : log_(log),
      options_(options),
      random_(options.seed),
      submitted_(log.writes.size(), kNever),
      completed_(log.writes.size(), kNever),
      durable_(std::make_shared<MemoryImage>(log.base)),
      is_durable_(log.writes.size(), false),
      pending_index_(log.writes.size(), 0) {
  SLUICE_CHECK(options.exhaustive <= kMaxExhaustive);
  // The log keeps its own blocks: the copy must not write into them.
  *durable_ = durable_->Share();
  for (uint64_t i = 0; i < log_.events.size(); ++i) {
    const CrashLog::Event& event = log_.events[i];
    if (event.kind == EventKind::kWriteSubmitted) submitted_[event.id] = i;
    if (event.kind == EventKind::kWriteCompleted) completed_[event.id] = i;
  }
}

CrashStates::~CrashStates() = default;

bool CrashStates::Next() {
  for (;;) {
    while (phase_ == Phase::kEnd) {
      if (!NextEpoch()) return false;
    }
    parts_.clear();
    if (!Step()) continue;
    const uint64_t key[] = {StateHash(), mark_.has_value(), mark_.value_or(0)};
    if (seen_.insert(XXH3_64bits(key, sizeof(key))).second) return true;
  }
}

// An epoch ends before the next completed flush, or with the log.
bool CrashStates::NextEpoch() {
  const uint64_t size = log_.events.size();
  if (started_ && position_ == size) return false;
  // The flush that ended the last epoch belongs to this one.
  uint64_t end = started_ ? position_ + 1 : 0;
  started_ = true;
  while (end < size && log_.events[end].kind != EventKind::kFlushCompleted) ++end;
  AdvanceTo(end);
  if (pending_sectors_ <= options_.exhaustive) {
    StartPhase(Phase::kSectors);
  } else if (pending_.size() <= options_.exhaustive) {
    StartPhase(Phase::kSubsets);
  } else {
    StartPhase(Phase::kSingles);
  }
  return true;
}

// Makes the epoch the one whose end has `position` events before it. Only forwards.
void CrashStates::AdvanceTo(uint64_t position) {
  SLUICE_CHECK(position >= position_);
  // States handed out still look at the old contents.
  durable_ = std::make_shared<MemoryImage>(durable_->Share());
  for (; position_ < position; ++position_) {
    const CrashLog::Event& event = log_.events[position_];
    if (event.kind == EventKind::kMark) mark_ = event.id;
    if (event.kind != EventKind::kFlushCompleted) continue;
    uint64_t flush = position_;
    while (log_.events[flush].kind != EventKind::kFlushSubmitted ||
           log_.events[flush].id != event.id) {
      --flush;
    }
    // In the order of completion, which is what reads have seen.
    for (uint64_t i = 0; i < flush; ++i) {
      if (log_.events[i].kind == EventKind::kWriteCompleted) MakeDurable(log_.events[i].id);
    }
  }
  CollectPending();
}

void CrashStates::MakeDurable(uint64_t write) {
  if (is_durable_[write]) return;
  is_durable_[write] = true;
  const CrashLog::Write& bytes = *log_.writes[write];
  const Sector poison = Poison(*durable_);
  for (size_t i = 0; i < SectorsOf(bytes); ++i) {
    const uint64_t number = bytes.offset / kSectorSize + i;
    durable_hash_ ^= HashSector(number, SectorOf(*durable_, number).data()) ^
                     HashSector(number, SectorData(bytes, i, poison));
  }
  Apply(log_.writes[write], {}, durable_.get());
}

void CrashStates::CollectPending() {
  pending_.clear();
  pending_sectors_ = 0;
  const Sector poison = Poison(*durable_);
  for (uint64_t id = 0; id < log_.writes.size(); ++id) {
    const CrashLog::Write& write = *log_.writes[id];
    if (is_durable_[id] || submitted_[id] >= position_ || write.length == 0) continue;
    Pending pending{.write = id, .submitted = submitted_[id], .completed = completed_[id]};
    for (size_t i = 0; i < SectorsOf(write); ++i) {
      const uint64_t number = write.offset / kSectorSize + i;
      pending.change.push_back(HashSector(number, SectorOf(*durable_, number).data()) ^
                               HashSector(number, SectorData(write, i, poison)));
      pending.whole_change ^= pending.change.back();
    }
    pending_sectors_ += pending.change.size();
    pending_.push_back(std::move(pending));
  }
  // Ids are given at submission, so this is the order of submission already.
  for (size_t i = 0; i < pending_.size(); ++i) pending_index_[pending_[i].write] = i;
  FindOverlaps();
}

void CrashStates::FindOverlaps() {
  overlaps_ = concurrent_overlaps_ = false;
  std::vector<const Pending*> by_offset;
  for (const Pending& pending : pending_) by_offset.push_back(&pending);
  const auto offset = [this](const Pending* p) { return log_.writes[p->write]->offset; };
  const auto end = [this, offset](const Pending* p) {
    return offset(p) + log_.writes[p->write]->length;
  };
  std::sort(by_offset.begin(), by_offset.end(),
            [&](const Pending* a, const Pending* b) { return offset(a) < offset(b); });
  for (size_t i = 0; i < by_offset.size(); ++i) {
    const Pending* const a = by_offset[i];
    for (size_t j = i + 1; j < by_offset.size() && offset(by_offset[j]) < end(a); ++j) {
      const Pending* const b = by_offset[j];
      overlaps_ = true;
      if (a->submitted < b->completed && b->submitted < a->completed) concurrent_overlaps_ = true;
    }
  }
}

void CrashStates::StartPhase(Phase phase) {
  phase_ = phase;
  step_ = 0;
}

bool CrashStates::Step() {
  switch (phase_) {
    case Phase::kSectors:
      if (StepSectors()) return true;
      StartPhase(Phase::kEnd);
      return false;
    case Phase::kSubsets:
      if (StepSubsets()) return true;
      StartPhase(Phase::kTears);
      return false;
    case Phase::kTears:
      if (StepTears()) return true;
      StartPhase(Phase::kSamples);
      return false;
    case Phase::kSingles:
      if (StepSingles()) return true;
      StartPhase(Phase::kSamples);
      return false;
    case Phase::kSamples: {
      const bool rest = pending_.size() <= options_.exhaustive;
      if (step_++ < (rest ? options_.samples / 4 : options_.samples)) {
        Sample();
        return true;
      }
      StartPhase(Phase::kEnd);
      return false;
    }
    case Phase::kEnd:
      break;
  }
  return false;
}

// Steps 2k and 2k+1 are subset k in two orders, where orders matter.
bool CrashStates::StepSectors() {
  const uint64_t orders = concurrent_overlaps_ ? 2 : 1;
  uint64_t subset = step_ / orders;
  if (subset >> pending_sectors_ != 0) return false;
  for (const Pending& pending : pending_) {
    std::vector<bool> mask(pending.change.size());
    for (size_t i = 0; i < mask.size(); ++i, subset >>= 1) mask[i] = (subset & 1) != 0;
    if (std::find(mask.begin(), mask.end(), true) == mask.end()) continue;
    if (std::find(mask.begin(), mask.end(), false) == mask.end()) mask.clear();
    parts_.push_back({pending.write, std::move(mask)});
  }
  if (step_++ % orders == 1) Reorder(Order::kLatestFirst);
  return true;
}

bool CrashStates::StepSubsets() {
  const uint64_t orders = concurrent_overlaps_ ? 2 : 1;
  const uint64_t subset = step_ / orders;
  if (subset >> pending_.size() != 0) return false;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if ((subset >> i & 1) != 0) AddWhole(i);
  }
  if (step_++ % orders == 1) Reorder(Order::kLatestFirst);
  return true;
}

// Each write torn, its front there or its back, among none, the earlier, and all of the others.
bool CrashStates::StepTears() {
  uint64_t step = step_++;
  for (size_t i = 0; i < pending_.size(); ++i) {
    const size_t sectors = pending_[i].change.size();
    const uint64_t cuts = std::min<uint64_t>(sectors - 1, kMaxCuts);
    if (step >= cuts * 6) {
      step -= cuts * 6;
      continue;
    }
    const uint64_t which = step / 6;
    const size_t cut = cuts < kMaxCuts ? which + 1 : 1 + which * (sectors - 2) / (kMaxCuts - 1);
    const bool front = step % 2 == 0;
    const uint64_t others = step / 2 % 3;  // 0 none, 1 the earlier, 2 all
    for (size_t j = 0; j < pending_.size(); ++j) {
      if (j != i) {
        if (others == 2 || (others == 1 && j < i)) AddWhole(j);
        continue;
      }
      std::vector<bool> mask(sectors);
      for (size_t sector = 0; sector < sectors; ++sector) mask[sector] = (sector < cut) == front;
      parts_.push_back({pending_[i].write, std::move(mask)});
    }
    return true;
  }
  return false;
}

// Each prefix of the writes, each write alone, each alone missing.
bool CrashStates::StepSingles() {
  const size_t n = pending_.size();
  if (step_ >= 3 * n + 1) return false;
  for (size_t i = 0; i < n; ++i) {
    const bool in = step_ <= n       ? i < step_
                    : step_ <= 2 * n ? i == step_ - n - 1
                                     : i != step_ - 2 * n - 1;
    if (in) AddWhole(i);
  }
  ++step_;
  return true;
}

// A crash at a random moment of the epoch, a random density, some writes torn.
void CrashStates::Sample() {
  const size_t n = 1 + random_() % pending_.size();
  const uint64_t density = 1 + random_() % 7;  // eighths
  const uint64_t tears = random_() % 4 * 2;    // eighths
  for (size_t i = 0; i < n; ++i) {
    if (random_() % 8 >= density) continue;
    std::vector<bool> mask;
    if (random_() % 8 < tears) mask = RandomMask(pending_[i].change.size());
    parts_.push_back({pending_[i].write, std::move(mask)});
  }
  if (concurrent_overlaps_) Reorder(Order::kRandom);
}

// A front, a back, or any sectors.
std::vector<bool> CrashStates::RandomMask(size_t sectors) {
  if (sectors < 2) return {};
  std::vector<bool> mask(sectors);
  const uint64_t shape = random_() % 3;
  const size_t cut = 1 + random_() % (sectors - 1);
  for (size_t i = 0; i < sectors; ++i) {
    mask[i] = shape == 2 ? random_() % 2 == 0 : (i < cut) == (shape == 0);
  }
  return mask;
}

const CrashStates::Pending& CrashStates::PendingOf(uint64_t write) const {
  return pending_[pending_index_[write]];
}

// A write may come next when none of the others was complete before it was submitted.
void CrashStates::Reorder(Order order) {
  std::vector<Part> rest = std::exchange(parts_, {});
  std::vector<size_t> ready;
  while (!rest.empty()) {
    uint64_t first_completed = kNever;
    for (const Part& part : rest) {
      first_completed = std::min(first_completed, PendingOf(part.write).completed);
    }
    ready.clear();
    for (size_t i = 0; i < rest.size(); ++i) {
      if (PendingOf(rest[i].write).submitted < first_completed) ready.push_back(i);
    }
    const size_t pick =
        order == Order::kLatestFirst ? ready.back() : ready[random_() % ready.size()];
    parts_.push_back(std::move(rest[pick]));
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(pick));
  }
}

uint64_t CrashStates::StateHash() const {
  uint64_t hash = durable_hash_;
  if (!overlaps_) {
    for (const Part& part : parts_) {
      const Pending& pending = PendingOf(part.write);
      if (part.mask.empty()) {
        hash ^= pending.whole_change;
        continue;
      }
      for (size_t i = 0; i < part.mask.size(); ++i) {
        if (part.mask[i]) hash ^= pending.change[i];
      }
    }
    return hash;
  }
  // The last one to write a sector has it.
  absl::flat_hash_set<uint64_t> written;
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    const Pending& pending = PendingOf(part->write);
    const uint64_t first = log_.writes[part->write]->offset / kSectorSize;
    for (size_t i = 0; i < pending.change.size(); ++i) {
      if (!part->mask.empty() && !part->mask[i]) continue;
      if (written.insert(first + i).second) hash ^= pending.change[i];
    }
  }
  return hash;
}

std::unique_ptr<MemoryDevice> CrashStates::Materialize() const {
  MemoryImage image{std::shared_ptr<const MemoryImage>(durable_)};
  for (const Part& part : parts_) Apply(log_.writes[part.write], part.mask, &image);
  return std::make_unique<MemoryDevice>(std::move(image));
}

// c1:<events before the crash>:<write>[=<sectors in hex>],...:<hash of the contents>
std::string CrashStates::Token() const {
  std::string token = absl::StrCat(kTokenVersion, ":", position_, ":");
  for (size_t i = 0; i < parts_.size(); ++i) {
    absl::StrAppend(&token, i == 0 ? "" : ",", parts_[i].write);
    if (!parts_[i].mask.empty()) absl::StrAppend(&token, "=", HexOf(parts_[i].mask));
  }
  absl::StrAppend(&token, ":", absl::Hex(StateHash()));
  return token;
}

Error CrashStates::GoTo(const std::string& token) {
  const std::vector<std::string> fields = absl::StrSplit(token, ':');
  uint64_t position = 0, hash = 0;
  if (fields.size() != 4 || fields[0] != kTokenVersion || !ParseNumber(fields[1], 10, &position) ||
      !ParseNumber(fields[3], 16, &hash) || position > log_.events.size() || position < position_) {
    return Error::kInvalid;
  }
  started_ = true;
  AdvanceTo(position);
  StartPhase(Phase::kEnd);
  parts_.clear();
  const std::vector<std::string> parts = absl::StrSplit(fields[2], ',', absl::SkipEmpty());
  for (const std::string& text : parts) {
    const size_t equals = text.find('=');
    Part part{};
    if (!ParseNumber(std::string_view(text).substr(0, equals), 10, &part.write)) {
      return Error::kInvalid;
    }
    const auto is_this = [&part](const Pending& pending) { return pending.write == part.write; };
    const auto found = std::find_if(pending_.begin(), pending_.end(), is_this);
    if (found == pending_.end()) return Error::kInvalid;
    if (equals != std::string::npos &&
        !ParseMask(std::string_view(text).substr(equals + 1), found->change.size(), &part.mask)) {
      return Error::kInvalid;
    }
    parts_.push_back(std::move(part));
  }
  return StateHash() == hash ? Error::kOk : Error::kInvalid;
}

}  // namespace sluice
