#include "spec/parameters.h"

#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

namespace {
std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}
}  // namespace

std::int64_t LogicalTensor::elements() const { return product(shape); }
std::int64_t StoredParameter::elements() const { return product(shape); }

int UnitLayout::add(StoredParameter parameter) {
  std::int64_t inside = 0;
  for (const LogicalTensor& piece : parameter.pieces) inside += piece.elements();
  LOCKSTEP_CHECK(inside == (parameter.tied ? 0 : parameter.elements()),
                 "{}: a parameter of {} elements made of pieces of {}", name_, parameter.elements(), inside);
  parameters_.push_back(std::move(parameter));
  place();
  return static_cast<int>(parameters_.size()) - 1;
}

void UnitLayout::place() {
  offsets_.assign(parameters_.size(), 0);
  std::int64_t next = 0;
  const auto place_those = [&](auto&& chosen) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (chosen(parameters_[i])) {
        offsets_[i] = next;
        next += round_up(parameters_[i].elements(), kParameterAlignment);
      }
    return next;
  };
  decayed_ = place_those([](const StoredParameter& p) { return !p.tied && p.shape.size() >= 2; });
  owned_ = place_those([](const StoredParameter& p) { return !p.tied && p.shape.size() < 2; });
  elements_ = place_those([](const StoredParameter& p) { return p.tied; });
}

}  // namespace lockstep
