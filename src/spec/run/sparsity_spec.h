// Sparse training: a mask that grows over the first steps and takes weights away by their magnitude ([sparsity] of a
// run file; docs/sparsity.md).
//
// Masked are the matrices of blocks: not embedding, head, norms and biases. Before each mask step a share of every such
// matrix is masked, its smallest master weights, of equal ones those with the highest index in the logical tensor: so
// the mask is a function of logical elements, and no layout changes it. A masked weight is zero, has no optimizer
// state, takes no update, and never comes back.
//
//   unstructured  the share of each matrix, wherever its elements are
//   2:4           two of every four elements that follow each other along the product's inputs (its K), and so half of
//                 all. While the mask grows, first the smallest of each four may go, then the second smallest; the two
//                 largest always stay.
//
// Mask steps are begin + every, begin + 2 every, …, end: each takes place after that many training steps. At mask step
// t, with x = (t - begin) / (end - begin), the share is
//
//   cubic   share · (1 - (1 - x)³)   (Zhu and Gupta)
//   linear  share · x
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class SparsityKind { none, unstructured, two_of_four };
inline constexpr std::array kSparsityKinds{SparsityKind::none, SparsityKind::unstructured, SparsityKind::two_of_four};

constexpr std::string_view name_of(SparsityKind kind) {
  constexpr std::string_view kNames[] = {"none", "unstructured", "2:4"};
  return kNames[static_cast<std::size_t>(kind)];
}

enum class SparsitySchedule { cubic, linear };
inline constexpr std::array kSparsitySchedules{SparsitySchedule::cubic, SparsitySchedule::linear};

constexpr std::string_view name_of(SparsitySchedule schedule) {
  return schedule == SparsitySchedule::cubic ? "cubic" : "linear";
}

struct SparsitySpec {
  SparsityKind kind = SparsityKind::none;
  double share = 0.5;  // unstructured: of each matrix that is masked in the end
  std::int64_t begin = 0, end = 0, every = 1;
  SparsitySchedule schedule = SparsitySchedule::cubic;
  bool operator==(const SparsitySpec&) const = default;

  explicit operator bool() const { return kind != SparsityKind::none; }
  // Whether a mask step takes place after this many training steps, before the next.
  bool masks_after(std::int64_t steps) const {
    return kind != SparsityKind::none && steps > begin && steps <= end && (steps - begin) % every == 0;
  }
  // The share that is masked from the last mask step on, after this many training steps.
  double share_after(std::int64_t steps) const {
    if (kind == SparsityKind::none || steps < begin + every) return 0;
    const double whole = kind == SparsityKind::two_of_four ? 0.5 : share;
    if (steps >= end) return whole;
    const double left = 1 - static_cast<double>((steps - begin) / every * every) / static_cast<double>(end - begin);
    return whole * (schedule == SparsitySchedule::cubic ? 1 - left * left * left : 1 - left);
  }
  // How many of a matrix's elements stay.
  std::int64_t kept(std::int64_t elements, std::int64_t steps) const {
    return elements - std::llround(share_after(steps) * static_cast<double>(elements));
  }
};

}  // namespace lockstep
