// A few steps of training over thread ranks, and what they learned, whole: whatever part of it each rank holds.
#pragma once
#include <functional>
#include <vector>

#include "train/replica.h"

namespace lockstep::tests {

struct Learned {
  std::vector<double> losses, norms;
  // Master weights of all logical tensors, one behind the other, as numbers: of every copy of them that the ranks hold
  // between them.
  std::vector<std::vector<double>> copies;

  const std::vector<double>& weights() const { return copies.at(0); }
};

constexpr std::int64_t kLearningSamples = 24;  // of a global batch

// A small run that clips: its layout may be anything.
Replica::Options learning_options(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision);

using WrapRanks = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;

Learned learn(const Replica::Options& options, int steps = 3, const WrapRanks& wrap = {});
inline Learned learn(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision) {
  return learn(learning_options(spec, layout, precision));
}

struct LearnedTolerances {
  double losses, norms, weights;
};
// Copies are equal to the bit.
void expect_close(const Learned& many, const Learned& one, const LearnedTolerances& tolerances,
                  const std::string& what);
// Losses to the tolerance; norms and weights, which are further from them, to ten times that.
inline void expect_close(const Learned& many, const Learned& one, double tolerance, const std::string& what) {
  expect_close(many, one, {tolerance, 10 * tolerance, 10 * tolerance}, what);
}
void expect_equal(const Learned& one, const Learned& other, const std::string& what);

}  // namespace lockstep::tests
