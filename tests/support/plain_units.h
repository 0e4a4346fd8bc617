// Units of a few parameters without a model around them, and the gradients of a step as a slow plain sum: what tests of
// parallel/ compare with.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "comm/ranks.h"
#include "parallel/gradients.h"

namespace lockstep::tests {

class PlainUnits {
 public:
  using Sizes = std::vector<std::int64_t>;

  // Vectors of these many elements, by unit; with `tied` the last unit also borrows the first parameter of the first.
  explicit PlainUnits(const std::vector<Sizes>& units, bool tied = false) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      layouts_.push_back(std::make_unique<UnitLayout>("unit." + std::to_string(u)));
      for (std::size_t p = 0; p < units[u].size(); ++p)
        layouts_.back()->add(
            {.shape = {units[u][p]}, .pieces = {{{std::to_string(u) + "." + std::to_string(p), {units[u][p]}}}}});
    }
    if (!tied) return;
    const int borrower = count() - 1;
    const int parameter = layouts_.back()->add({.shape = {units[0][0]}, .tied = true});
    tie_ = TiedParameter{0, 0, borrower, parameter, layouts_.front().get()};
  }

  int count() const { return static_cast<int>(layouts_.size()); }
  const UnitLayout& layout(int unit) const { return *layouts_[static_cast<std::size_t>(unit)]; }
  const std::optional<TiedParameter>& tie() const { return tie_; }
  std::vector<const UnitLayout*> layouts() const {
    std::vector<const UnitLayout*> all;
    for (const auto& layout : layouts_) all.push_back(layout.get());
    return all;
  }
  StepShape shape(int micro, bool reduces_each) const {
    return {.units = count(),
            .micro = micro,
            .tie_owner = tie_ ? tie_->owner_unit : -1,
            .tie_borrower = tie_ ? tie_->borrower_unit : -1,
            .reduces_each = reduces_each};
  }

  // The gradient of one element that one rank makes of one micro-batch: a small whole number.
  static double gradient(int rank, int micro, int unit, int parameter, std::int64_t i) {
    return whole(rank + 5 * micro + 3 * unit + parameter, i);
  }
  // Runs the actions of a step that concern gradients, on one rank.
  void run(Gradients& gradients, const std::vector<Action>& actions, int rank) const {
    for (const Action& a : actions) {
      if (a.kind == ActionKind::forward && a.unit == count() - 1) gradients.open(a.unit, a.micro);
      if (a.kind == ActionKind::backward_weight) {
        const std::vector<Tensor>& all = gradients.open(a.unit, a.micro);
        for (std::size_t p = 0; p < all.size(); ++p)
          for (std::int64_t i = 0; i < all[p].elements(); ++i) {
            float& here = all[p].data<float>()[i];
            here = (gradients.adds(a.micro) ? here : 0) +
                   static_cast<float>(gradient(rank, a.micro, a.unit, static_cast<int>(p), i));
          }
      }
      if (a.kind == ActionKind::reduce) gradients.whole(a.unit, a.micro);
    }
    gradients.wait();
  }
  // The flat gradient of a unit, summed over ranks, micro-batches and, of a tied weight, both homes; padding is zero.
  std::vector<double> sum(int unit, int ranks, int micro, std::int64_t elements) const {
    std::vector<double> flat(static_cast<std::size_t>(elements));
    const auto add = [&](int from_unit, int from, int to) {
      for (int r = 0; r < ranks; ++r)
        for (int m = 0; m < micro; ++m)
          for (std::int64_t i = 0; i < layout(unit).parameters()[static_cast<std::size_t>(to)].elements(); ++i)
            flat[static_cast<std::size_t>(layout(unit).offset(to) + i)] += gradient(r, m, from_unit, from, i);
    };
    for (int p = 0; p < static_cast<int>(layout(unit).parameters().size()); ++p)
      if (!layout(unit).parameters()[static_cast<std::size_t>(p)].tied) add(unit, p, p);
    if (tie_ && unit == tie_->owner_unit) add(tie_->borrower_unit, tie_->borrower_parameter, tie_->owner_parameter);
    return flat;
  }

 private:
  std::vector<std::unique_ptr<UnitLayout>> layouts_;
  std::optional<TiedParameter> tie_;
};

// This rank's part of the sums, of every unit, is the plain sum.
inline void expect_plain_sums(const Gradients& gradients, const PlainUnits& units, ZeroGroups& groups, int micro) {
  for (int u = 0; u < units.count(); ++u) {
    const std::int64_t owned = units.layout(u).owned();
    const std::vector<double> want = units.sum(u, groups.all().size(), micro, groups.shard().padded(owned));
    const Tensor got = gradients.reduced(u);
    ASSERT_EQ(got.elements(), groups.shard().elements(owned));
    for (std::int64_t i = 0; i < got.elements(); ++i)
      ASSERT_EQ(got.data<float>()[i], want[static_cast<std::size_t>(groups.shard().begin(owned) + i)])
          << "unit " << u << ", element " << i << " of rank " << groups.all().rank();
  }
}

}  // namespace lockstep::tests
