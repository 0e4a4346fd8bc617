// Picking the next token from a model's logits.
//
// Pure functions: the same logits, settings and position give the same token, on any machine that computes doubles.
// Probabilities are softmax(logits / temperature) in double. top_k keeps the k most likely tokens; top_p then keeps the
// fewest of those, from the most likely on, that together have at least that share of what top_k left; min_p then keeps
// those that are at least that share as likely as the likeliest. Of equal logits the lower id counts as the likelier.
// Temperature 0 keeps the most likely token alone. A repetition penalty above 1 makes tokens that were there before
// less likely, before all of this: their logits are divided by it where they are above 0, and multiplied where below.
//
// Random numbers are a function of (seed, position), never drawn from a sequence: a text that is continued later is the
// text that it would have been.
//
// Failure: UserError (check_failed) for a logit that is NaN or +infinity, or when all are -infinity; one of -infinity
// is a token that never comes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Sampling {
  double temperature = 0.8;  // 0 = greedy
  std::int64_t top_k = 0;    // 0 = all
  double top_p = 1;          // 1 = all
  double min_p = 0;          // 0 = all
  double repetition = 1;     // penalty; 1 = none
  std::uint64_t seed = 0;
};

// UserError (usage) naming the setting that is out of its range.
void validate(const Sampling& settings);

// Applies the penalty: to each of the tokens once, however often it was there.
void penalize(std::span<double> logits, std::span<const std::int32_t> tokens, double penalty);

struct Candidate {
  std::int32_t id;
  double probability;  // above 0; those of all candidates sum to 1
};

// The tokens that may be picked, by ascending id. They are stored in `room`, which grows to the vocabulary's size and
// no further.
std::span<const Candidate> candidates(std::span<const double> logits, const Sampling& settings,
                                      std::vector<Candidate>& room);

// The token at this position of the text.
std::int32_t pick(std::span<const double> logits, const Sampling& settings, std::int64_t position,
                  std::vector<Candidate>& room);

}  // namespace lockstep
