// A language whose entropy is known: a Markov chain of order 1 or 2 over V symbols, made from a seed.
//
// Each context (the last one or two symbols) has `branching` successors with unequal probabilities, about 1/1, 1/2,
// 1/3, … of each other. No model can predict it better than the chain itself does, and a model that has learned it does
// as well, so a training run's loss has a floor that is known before the run.
//
// A sample is a function of (language, index) alone: its first context is drawn from the stationary distribution, the
// rest from the chain, each position by its own Philox counter. So every position has the stationary law, and floor(T)
// is exact for a model that sees a sample from its beginning.
//
// Which symbol follows which, with which probability, and every sample are integer arithmetic on Philox words, equal on
// all machines; the first context also depends on sums and products of doubles, which are equal wherever doubles are
// IEEE's. Entropies are in nats.
//
// Irreducible and aperiodic by construction (for branching >= 2): one successor of each context is set so that these
// alone lead through all contexts in one circle (order 1: a random circle of the symbols; order 2: a random de Bruijn
// sequence, which holds each pair once), and context 0 (symbol 0, or 0 twice) can also follow itself, which leaves 1 as
// the only common divisor of the lengths of its loops. With branching = 1 only the circle is left: the next token is
// certain, the stationary distribution is uniform, and no chain without choice can avoid having a period.
//
// Memory: 6 bytes per context and successor, 16 bytes per context. Threads: const members from any thread at once.
// Failure: UserError (usage) unless order is 1 or 2, V in [2, 4096] (order 1) or [2, 256] (order 2), and branching in
// [1, V].
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "spec/run/run_spec.h"

namespace lockstep {

class SyntheticLanguage {
 public:
  explicit SyntheticLanguage(const SyntheticSpec& spec);

  const SyntheticSpec& spec() const { return spec_; }
  std::int64_t vocabulary() const { return spec_.vocabulary; }

  // Sample `index` (>= 0), as many tokens as there is room for. A longer one begins with a shorter one.
  void sample(std::int64_t index, std::span<std::int32_t> tokens) const;

  // Nats per token, given all before it.
  double entropy_rate() const { return entropy_rate_; }
  // The least mean loss over the T targets of a sample (tokens 1 … T, each given all tokens before it). Of order 2, the
  // first target has one token of context where the others have two, so it is harder.
  double floor(std::int64_t targets) const;

  // The law, for tests and reports: a context's number is its last symbol, plus V times the one before for order 2.
  std::int64_t contexts() const { return static_cast<std::int64_t>(stationary_.size()); }
  double stationary(std::int64_t context) const { return stationary_[static_cast<std::size_t>(context)]; }
  double probability(std::int64_t context, std::int32_t next) const;
  std::span<const std::uint16_t> successors(std::int64_t context) const;

  std::uint64_t fingerprint() const;

 private:
  std::int64_t following(std::int64_t context, std::int64_t symbol) const;  // the context that results
  std::span<const std::uint32_t> row(std::int64_t context) const;
  void choose_successors();
  void find_stationary();
  void measure_entropy();

  SyntheticSpec spec_;
  std::vector<std::uint16_t> successors_;  // branching of them a context
  std::vector<std::uint32_t> cumulative_;  // their weights, summed up within each context
  std::vector<double> stationary_;         // of contexts
  std::vector<double> stationary_upto_;    // summed up
  double entropy_rate_ = 0, first_entropy_ = 0;
};

}  // namespace lockstep
