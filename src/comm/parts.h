// Which elements of a flat row belong to which rank.
//
// Equal shares, counts by rank, or as even as can be: of n elements over N parts, the first n mod N have one more.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace lockstep {

class Parts {
 public:
  // As even as can be.
  Parts(std::int64_t elements, int parts) : elements_(elements), parts_(parts) {}
  // counts[r] each; equal shares where there are none. The counts must outlive this.
  Parts(std::int64_t elements, int parts, const std::vector<std::int64_t>& counts)
      : elements_(elements), parts_(parts), counts_(counts.empty() ? nullptr : &counts) {
    if (!counts_) {
      LOCKSTEP_CHECK(elements % parts == 0, "{} elements do not make {} equal shares; give counts", elements, parts);
      return;
    }
    begins_.reserve(counts.size());
    std::int64_t at = 0;
    for (const std::int64_t count : counts) {
      begins_.push_back(at);
      at += count;
    }
  }

  std::int64_t elements() const { return elements_; }
  std::int64_t size(int part) const {
    return counts_ ? (*counts_)[static_cast<std::size_t>(part)] : elements_ / parts_ + (part < elements_ % parts_);
  }
  std::int64_t begin(int part) const {
    if (counts_) return part < parts_ ? begins_[static_cast<std::size_t>(part)] : elements_;
    return elements_ / parts_ * part + std::min<std::int64_t>(part, elements_ % parts_);
  }

 private:
  std::int64_t elements_;
  int parts_;
  const std::vector<std::int64_t>* counts_ = nullptr;
  std::vector<std::int64_t> begins_;
};

}  // namespace lockstep
