#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {

void validate(const Sampling& s) {
  const auto refuse = [](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, problem, remedy);
  };
  if (!(s.temperature >= 0) || std::isinf(s.temperature))
    refuse(fmt::format("a temperature of {}", s.temperature), "use a number from 0 (greedy) on, as in 0.8");
  if (s.top_k < 0) refuse(fmt::format("a top-k of {}", s.top_k), "use 0 (every token) or more");
  if (!(s.top_p > 0 && s.top_p <= 1))
    refuse(fmt::format("a top-p of {}", s.top_p), "use a number above 0 and at most 1");
  if (!(s.min_p >= 0 && s.min_p <= 1))
    refuse(fmt::format("a min-p of {}", s.min_p), "use a number from 0 (every token) to 1");
  if (!(s.repetition > 0) || std::isinf(s.repetition))
    refuse(fmt::format("a repetition penalty of {}", s.repetition), "use 1 (none) or a number above, as in 1.1");
}

void penalize(std::span<double> logits, std::span<const std::int32_t> tokens, double penalty) {
  if (penalty == 1) return;
  std::vector<std::int32_t> once(tokens.begin(), tokens.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const std::int32_t token : once) {
    double& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

namespace {

// The highest logit's id, the lowest of several.
std::int32_t best_of(std::span<const double> logits) {
  LOCKSTEP_CHECK(!logits.empty(), "no logits");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<double>::infinity())
      throw UserError(ExitCode::check_failed, fmt::format("the model's logit of token id {} is {}", i, logits[i]),
                      "its weights hold bad values, or the precision is too narrow for them: try fp32 or fp64");
    if (logits[i] > logits[best]) best = i;
  }
  if (std::isinf(logits[best]))
    throw UserError(ExitCode::check_failed, "all of the model's logits are -inf", "its weights hold bad values");
  return static_cast<std::int32_t>(best);
}

double total_of(std::span<const Candidate> kept) {
  double total = 0;
  for (const Candidate& c : kept) total += c.probability;
  return total;
}

}  // namespace

std::span<const Candidate> candidates(std::span<const double> logits, const Sampling& s, std::vector<Candidate>& room) {
  const std::int32_t best = best_of(logits);
  room.clear();
  room.reserve(logits.size());
  if (s.temperature == 0) {
    room.push_back({best, 1});
    return room;
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - logits[best]) / s.temperature);
    if (weight > 0) room.push_back({static_cast<std::int32_t>(i), weight});
  }
  // By logits: a high temperature can make the probabilities of different ones equal.
  const auto likelier = [&](const Candidate& a, const Candidate& b) {
    return logits[a.id] != logits[b.id] ? logits[a.id] > logits[b.id] : a.id < b.id;
  };
  bool sorted = true;  // by id
  if (s.top_k > 0 && s.top_k < std::ssize(room)) {
    std::nth_element(room.begin(), room.begin() + s.top_k, room.end(), likelier);
    room.resize(static_cast<std::size_t>(s.top_k));
    sorted = false;
  }
  if (s.top_p < 1) {
    std::sort(room.begin(), room.end(), likelier);
    const double wanted = s.top_p * total_of(room);
    double sum = 0;
    std::size_t kept = 0;
    while (kept < room.size() && sum < wanted) sum += room[kept++].probability;
    room.resize(kept);
    sorted = false;
  }
  if (s.min_p > 0) std::erase_if(room, [&](const Candidate& c) { return c.probability < s.min_p; });  // the best has 1
  // By id again, so that a filter that keeps every token changes nothing.
  if (!sorted) std::sort(room.begin(), room.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const double total = total_of(room);
  for (Candidate& c : room) c.probability /= total;
  return room;
}

std::int32_t pick(std::span<const double> logits, const Sampling& s, std::int64_t position,
                  std::vector<Candidate>& room) {
  const std::span<const Candidate> from = candidates(logits, s, room);
  const Philox4 random = philox(random_key(s.seed, "generate"), static_cast<std::uint64_t>(position));
  // 53 bits: every double of [0, 1) at that spacing.
  const std::uint64_t bits = (static_cast<std::uint64_t>(random[1]) << 32 | random[0]) >> 11;
  double left = static_cast<double>(bits) * 0x1p-53;
  for (const Candidate& c : from) {
    if (left < c.probability) return c.id;
    left -= c.probability;
  }
  return from.back().id;  // what rounding left over
}

}  // namespace lockstep
