// The ledger: who holds how many bytes, now and at most (docs/design.md, rule 4).
//
// Every buffer names a tag (what it is for) and a unit (which part of the model: "embedding", "block.3", "head", or ""
// for what belongs to none). The ledger of a rank knows current and peak bytes by tag, by tag and unit, and in all. It
// is the same class on every device, so what `meta` says before a run can be compared with what the run did.
// Thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

enum class Tag : std::uint8_t { parameter, gathered, gradient, optimizer, activation, communication, workspace, data };
inline constexpr int kTags = 8;

std::string_view name_of(Tag tag);

class Ledger {
 public:
  struct Count {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    bool operator==(const Count&) const = default;
  };
  using Rows = std::map<std::pair<Tag, std::string>, Count>;

  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  void add(Tag tag, const std::string& unit, std::int64_t bytes);  // bytes < 0 gives back

  std::int64_t current(Tag tag) const;
  std::int64_t peak(Tag tag) const;
  std::int64_t current() const;
  std::int64_t peak() const;         // of the total, not the sum of the tags' peaks
  std::int64_t allocations() const;  // how many buffers were ever taken: a steady step takes none
  Rows rows() const;

 private:
  mutable std::mutex mutex_;
  std::array<Count, kTags> by_tag_{};
  Count total_;
  Rows rows_;
  std::int64_t allocations_ = 0;
};

}  // namespace lockstep
