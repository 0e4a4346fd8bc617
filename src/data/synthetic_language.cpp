#include "data/synthetic_language.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/checksum.h"
#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {

constexpr std::int64_t kLargestVocabulary[] = {4096, 256};  // of order 1 and 2
constexpr std::uint64_t kGeneration = 1;                    // raise it when the same spec gives another language

void check(const SyntheticSpec& spec) {
  const auto refuse = [](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, "synthetic data: " + problem, remedy);
  };
  if (spec.order != 1 && spec.order != 2) refuse(fmt::format("order = {}", spec.order), "choose 1 or 2");
  const std::int64_t most = kLargestVocabulary[spec.order - 1];
  if (spec.vocabulary < 2 || spec.vocabulary > most) {
    refuse(fmt::format("vocabulary = {}", spec.vocabulary), fmt::format("choose 2 to {} for this order", most));
  }
  if (spec.branching < 1 || spec.branching > spec.vocabulary) {
    refuse(fmt::format("branching = {}", spec.branching), "choose 1 to the size of the vocabulary");
  }
}

// A sequence of random 32-bit words for one use of the seed. (Samples ask for random numbers by position.)
class Words {
 public:
  Words(std::uint64_t key, std::uint64_t stream) : key_(key), stream_(stream) {}
  std::uint32_t next() {
    if (used_ == 4) words_ = philox(key_, counter_++, stream_), used_ = 0;
    return words_[used_++];
  }
  // In [0, n). Slightly uneven (by n / 2^32), which nothing that is claimed of the language depends on.
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>((std::uint64_t{next()} * n) >> 32); }

 private:
  std::uint64_t key_, stream_, counter_ = 0;
  Philox4 words_{};
  std::size_t used_ = 4;
};

template <class T>
void shuffle(std::span<T> items, Words& words) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[words.below(i)]);
}

std::vector<std::uint16_t> symbols(std::size_t count) {
  std::vector<std::uint16_t> all(count);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

// For each symbol, the next in a random circle of all of them.
std::vector<std::uint16_t> random_circle(std::size_t vocabulary, Words& words) {
  std::vector<std::uint16_t> order = symbols(vocabulary), next(vocabulary);
  shuffle(std::span(order), words);
  for (std::size_t i = 0; i < vocabulary; ++i) next[order[i]] = order[(i + 1) % vocabulary];
  return next;
}

// For each pair of symbols, the next symbol in a circular sequence that holds every pair once: an Euler circuit
// (Hierholzer's) of the complete graph with loops, each vertex's edges taken in random order.
std::vector<std::uint16_t> random_de_bruijn(std::size_t vocabulary, Words& words) {
  std::vector<std::vector<std::uint16_t>> edges(vocabulary, symbols(vocabulary));
  for (auto& of_vertex : edges) shuffle(std::span(of_vertex), words);
  std::vector<std::uint16_t> path = {0}, circuit;
  while (!path.empty()) {
    auto& left = edges[path.back()];
    if (left.empty()) {
      circuit.push_back(path.back());
      path.pop_back();
    } else {
      path.push_back(left.back());
      left.pop_back();
    }
  }
  circuit.pop_back();  // it ends where it began
  std::vector<std::uint16_t> next(circuit.size());
  for (std::size_t i = 0; i < circuit.size(); ++i) {
    const std::size_t j = (i + 1) % circuit.size(), k = (i + 2) % circuit.size();
    next[circuit[i] * vocabulary + circuit[j]] = circuit[k];
  }
  return next;
}

// About 2^28 / rank. The first is at least 3/4 of that and the second at most 5/8, so they are never all equal; 4096 of
// them sum to less than 2^32.
std::uint32_t random_weight(std::size_t rank, Words& words) {
  const std::uint32_t middle = (1u << 28) / static_cast<std::uint32_t>(rank + 1);
  return middle / 4 * 3 + words.below(middle / 2);
}

double entropy_of(std::span<const std::uint32_t> cumulative) {
  double sum = 0, before = 0;
  for (const double upto : cumulative) {
    const double p = (upto - before) / cumulative.back();
    sum -= p * std::log(p);
    before = upto;
  }
  return sum;
}

std::uint64_t random_word(std::uint64_t key, std::uint64_t index, std::uint64_t position) {
  const Philox4 words = philox(key, position, index);
  return (std::uint64_t{words[1]} << 32) | words[0];
}

}  // namespace

SyntheticLanguage::SyntheticLanguage(const SyntheticSpec& spec) : spec_(spec) {
  check(spec);
  choose_successors();
  find_stationary();
  measure_entropy();
}

std::int64_t SyntheticLanguage::following(std::int64_t context, std::int64_t symbol) const {
  return spec_.order == 1 ? symbol : context % spec_.vocabulary * spec_.vocabulary + symbol;
}

std::span<const std::uint32_t> SyntheticLanguage::row(std::int64_t context) const {
  return std::span(cumulative_)
      .subspan(static_cast<std::size_t>(context * spec_.branching), static_cast<std::size_t>(spec_.branching));
}

std::span<const std::uint16_t> SyntheticLanguage::successors(std::int64_t context) const {
  return std::span(successors_)
      .subspan(static_cast<std::size_t>(context * spec_.branching), static_cast<std::size_t>(spec_.branching));
}

double SyntheticLanguage::probability(std::int64_t context, std::int32_t next) const {
  const auto choices = successors(context);
  const auto weights = row(context);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == next) return static_cast<double>(weights[i] - (i == 0 ? 0 : weights[i - 1])) / weights.back();
  }
  return 0;
}

void SyntheticLanguage::choose_successors() {
  const auto vocabulary = static_cast<std::size_t>(spec_.vocabulary);
  const auto branching = static_cast<std::size_t>(spec_.branching);
  const std::uint64_t key = random_key(spec_.seed, "synthetic/language");
  Words circle_words(key, ~std::uint64_t{0});
  const std::vector<std::uint16_t> circle =
      spec_.order == 1 ? random_circle(vocabulary, circle_words) : random_de_bruijn(vocabulary, circle_words);
  successors_.reserve(circle.size() * branching);
  cumulative_.reserve(circle.size() * branching);
  for (std::size_t context = 0; context < circle.size(); ++context) {
    Words words(key, context);
    std::vector<std::uint16_t> chosen = symbols(vocabulary);
    // What has to be among them goes first, the rest is drawn, and then all are ranked anew.
    std::size_t fixed = 0;
    std::swap(chosen[fixed++], chosen[circle[context]]);
    if (context == 0 && branching > 1) {  // the circle never leads from context 0 to symbol 0: it would end there
      std::swap(chosen[fixed++], *std::find(chosen.begin(), chosen.end(), 0));
    }
    for (; fixed < branching; ++fixed) std::swap(chosen[fixed], chosen[fixed + words.below(vocabulary - fixed)]);
    chosen.resize(branching);
    shuffle(std::span(chosen), words);
    std::uint32_t sum = 0;
    for (std::size_t rank = 0; rank < branching; ++rank) {
      successors_.push_back(chosen[rank]);
      cumulative_.push_back(sum += random_weight(rank, words));
    }
  }
  stationary_.assign(circle.size(), 1.0 / static_cast<double>(circle.size()));
}

// Power iteration from the uniform distribution. The chain is irreducible and aperiodic, so it converges; how fast is
// a matter of the second eigenvalue, about sqrt(sum of p^2) in a random chain.
void SyntheticLanguage::find_stationary() {
  constexpr double kClose = 1e-14;
  constexpr int kMostSteps = 100000;
  double change = 1;
  for (int step = 0; change > kClose; ++step) {
    LOCKSTEP_CHECK(step < kMostSteps, "no stationary distribution after {} steps; the last changed it by {}", step,
                   change);
    std::vector<double> next(stationary_.size(), 0.0);
    for (std::int64_t context = 0; context < contexts(); ++context) {
      const auto choices = successors(context);
      const auto weights = row(context);
      const double share = stationary(context) / weights.back();
      double before = 0;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        next[static_cast<std::size_t>(following(context, choices[i]))] += share * (weights[i] - before);
        before = weights[i];
      }
    }
    const double sum = std::accumulate(next.begin(), next.end(), 0.0);
    change = 0;
    for (std::size_t i = 0; i < next.size(); ++i) {
      next[i] /= sum;
      change += std::abs(next[i] - stationary_[i]);
    }
    stationary_ = std::move(next);
  }
  stationary_upto_.resize(stationary_.size());
  std::partial_sum(stationary_.begin(), stationary_.end(), stationary_upto_.begin());
}

void SyntheticLanguage::measure_entropy() {
  for (std::int64_t context = 0; context < contexts(); ++context) {
    entropy_rate_ += stationary(context) * entropy_of(row(context));
  }
  first_entropy_ = entropy_rate_;
  if (spec_.order == 1) return;
  // H(second | first) of a pair.
  const std::int64_t vocabulary = spec_.vocabulary;
  first_entropy_ = 0;
  for (std::int64_t x = 0; x < vocabulary; ++x) {
    double of_x = 0;
    for (std::int64_t y = 0; y < vocabulary; ++y) of_x += stationary(x * vocabulary + y);
    for (std::int64_t y = 0; y < vocabulary; ++y) {
      const double of_pair = stationary(x * vocabulary + y);
      if (of_pair > 0) first_entropy_ += of_pair * std::log(of_x / of_pair);
    }
  }
}

double SyntheticLanguage::floor(std::int64_t targets) const {
  LOCKSTEP_CHECK(targets >= 1, "{} targets", targets);
  return entropy_rate_ + (first_entropy_ - entropy_rate_) / static_cast<double>(targets);
}

void SyntheticLanguage::sample(std::int64_t index, std::span<std::int32_t> tokens) const {
  LOCKSTEP_CHECK(index >= 0, "sample {}", index);
  const std::uint64_t key = random_key(spec_.seed, "synthetic/samples");
  const auto number = static_cast<std::uint64_t>(index);
  const double place = static_cast<double>(random_word(key, number, 0) >> 11) * 0x1p-53 * stationary_upto_.back();
  const auto found = std::upper_bound(stationary_upto_.begin(), stationary_upto_.end() - 1, place);
  std::int64_t context = found - stationary_upto_.begin();

  std::size_t at = 0;
  if (spec_.order == 2 && !tokens.empty()) tokens[at++] = static_cast<std::int32_t>(context / spec_.vocabulary);
  if (at < tokens.size()) tokens[at++] = static_cast<std::int32_t>(context % spec_.vocabulary);
  for (; at < tokens.size(); ++at) {
    const auto weights = row(context);
    const auto draw = static_cast<std::uint32_t>(
        (static_cast<unsigned __int128>(random_word(key, number, at)) * weights.back()) >> 64);
    const auto choice = std::upper_bound(weights.begin(), weights.end(), draw) - weights.begin();
    tokens[at] = successors(context)[static_cast<std::size_t>(choice)];
    context = following(context, tokens[at]);
  }
}

std::uint64_t SyntheticLanguage::fingerprint() const {
  const std::array<std::uint64_t, 5> identity = {kGeneration, static_cast<std::uint64_t>(spec_.vocabulary),
                                                 static_cast<std::uint64_t>(spec_.order),
                                                 static_cast<std::uint64_t>(spec_.branching), spec_.seed};
  return checksum(std::as_bytes(std::span(identity)));
}

}  // namespace lockstep
