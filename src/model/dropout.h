// Dropout at one named site of the model: the mask is a function of the step's seed, the site and logical positions
// alone.
#pragma once
#include <string>

#include "model/unit.h"

namespace lockstep {

class DropoutSite {
 public:
  DropoutSite(double probability, std::string name) : probability_(probability), name_(std::move(name)) {}

  bool active(const Call& call) const { return probability_ > 0 && call.batch.training; }
  // y = dropout(x), or its gradient; y may be x. x is (rows, C), this rank's own tokens. Only when
  // active.
  void apply(Tensor y, ConstTensor x, const Call& call) const;
  double probability() const { return probability_; }
  std::uint64_t key(const Call& call) const;

 private:
  double probability_;
  std::string name_;
};

}  // namespace lockstep
