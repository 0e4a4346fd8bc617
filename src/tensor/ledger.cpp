#include "tensor/ledger.h"

#include <algorithm>

namespace lockstep {

std::string_view name_of(Tag tag) {
  static constexpr std::string_view kNames[kTags] = {"parameter",  "gathered",      "gradient",  "optimizer",
                                                     "activation", "communication", "workspace", "data"};
  return kNames[static_cast<int>(tag)];
}

namespace {
void add_to(Ledger::Count& count, std::int64_t bytes) {
  count.current += bytes;
  count.peak = std::max(count.peak, count.current);
}
}  // namespace

void Ledger::add(Tag tag, const std::string& unit, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  add_to(by_tag_[static_cast<int>(tag)], bytes);
  add_to(total_, bytes);
  add_to(rows_[{tag, unit}], bytes);
  if (bytes > 0) ++allocations_;
}

std::int64_t Ledger::current(Tag tag) const {
  const std::lock_guard lock(mutex_);
  return by_tag_[static_cast<int>(tag)].current;
}

std::int64_t Ledger::peak(Tag tag) const {
  const std::lock_guard lock(mutex_);
  return by_tag_[static_cast<int>(tag)].peak;
}

std::int64_t Ledger::current() const {
  const std::lock_guard lock(mutex_);
  return total_.current;
}

std::int64_t Ledger::peak() const {
  const std::lock_guard lock(mutex_);
  return total_.peak;
}

std::int64_t Ledger::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

Ledger::Rows Ledger::rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

}  // namespace lockstep
