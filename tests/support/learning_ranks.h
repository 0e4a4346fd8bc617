// A few steps of training over thread ranks, and what they learned, whole: whatever part of it each rank holds.
#pragma once
#include <functional>
#include <vector>

#include "train/replica.h"

namespace lockstep::tests {

struct Learned {
  std::vector<double> losses, norms;
  std::vector<double> compression_errors;  // by step, of the first rank; empty: not measured
  // All logical tensors, one after the other, as numbers: of every copy of them that the ranks hold between them.
  std::vector<std::vector<double>> copies;                  // master weights after the last step
  std::vector<std::vector<std::vector<double>>> gradients;  // by step, then copy; before clipping
  struct Tensor {
    std::string name;
    std::int64_t begin, count;
  };
  std::vector<Tensor> tensors;

  const std::vector<double>& weights() const { return copies.at(0); }
};

constexpr std::int64_t kLearningSamples = 24;  // of a global batch

// A small run that clips: its layout may be anything.
Replica::Options learning_options(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision);

using WrapRanks = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;

// On a GPU ranks are threads that share it. `servers_on_host`: parameter servers are on the cpu, whatever the others
// are on, and tensors go through the host.
Learned learn(const Replica::Options& options, int steps = 3, const WrapRanks& wrap = {}, Device device = Device::cpu,
              bool servers_on_host = false);
inline Learned learn(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision) {
  return learn(learning_options(spec, layout, precision));
}

// Relative errors: of each loss and norm, of each gradient tensor of every step, and of all weights together. A
// tensor's error is over its norm, or over 1e-6 of the norm of all of them where that is more (docs/design.md).
struct LearnedTolerances {
  double losses, norms, gradients, weights;
  double later = gradients;  // gradients after the first update, where Adam has made steps of what was rounding
};
// Where attention or layers are computed in other pieces than one rank's, step by step.
inline constexpr LearnedTolerances kCloseInDouble{1e-11, 1e-11, 1e-11, 1e-11},
    kCloseInSingle{1e-5, 1e-5, 1e-5, 1e-5, 1e-4};

// Copies, of gradients too, are equal to the bit.
void expect_close(const Learned& many, const Learned& one, const LearnedTolerances& tolerances,
                  const std::string& what);
// All of them to the same.
inline void expect_close(const Learned& many, const Learned& one, double tolerance, const std::string& what) {
  expect_close(many, one, LearnedTolerances{tolerance, tolerance, tolerance, tolerance}, what);
}
// The bits of all of them.
void expect_equal(const Learned& one, const Learned& other, const std::string& what);

}  // namespace lockstep::tests
