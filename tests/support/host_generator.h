// A generator on the cpu with everything it needs around it, weights for it that all matter, and the logits of a whole
// forward to hold its own to.
#pragma once
#include <functional>
#include <map>

#include "support/host_run.h"
#include "train/generator.h"

namespace lockstep::tests {

// The elements of each logical tensor, by name.
using TensorValues = std::map<std::string, std::vector<double>>;

struct HostGenerator {
  explicit HostGenerator(const Generator::Options& options, int threads = 1);

  void copy(const TensorValues& values);  // whatever of them is held here
  std::vector<double> feed(std::span<const std::int32_t> tokens);

  Ledger ledger;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<cpu::Stream> stream;
  std::unique_ptr<Generator> generator;
};

// A text to read, and what is read of it.
inline constexpr std::int64_t kTextTokens = 32;
using Logits = std::vector<std::vector<double>>;  // after each piece

// A body on each of pp · cp · tp ranks that have a model between them, with its generator.
void on_ranks(const Generator::Options& options, int tp, const std::function<void(int rank, HostGenerator&)>& body);

// A replica with weights that all matter: biases and norm weights start at 0 and 1, where a mistake could hide.
std::unique_ptr<HostRun> trained(const Replica::Options& options);
TensorValues values_of(const HostRun& run);

// The logits of a whole forward.
class Whole {
 public:
  Whole(Replica& replica, const TokenBatch& batch);
  double error(std::span<const double> got, std::int64_t t) const;  // relative, of row t

 private:
  std::int64_t V_;
  std::vector<double> logits_;
};

}  // namespace lockstep::tests
