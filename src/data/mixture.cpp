#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "base/error.h"

namespace lockstep {

namespace {

// q of a whole number of samples that a source may give: floor(epochs · samples), at least 1.
std::int64_t limit_of(const MixedSource& source) {
  if (source.epochs <= 0) return Mixture::kUnlimited;
  const double most = std::floor(source.epochs * static_cast<double>(source.samples));
  return most < 1 ? 1 : most < 4e18 ? static_cast<std::int64_t>(most) : Mixture::kUnlimited;
}

// The denominator up to `most` under which all shares are whole to within rounding of a double; 0: there is none.
std::int64_t exact_denominator(std::span<const double> shares, std::int64_t most) {
  for (std::int64_t d = 1; d <= most; ++d) {
    const bool whole = std::ranges::all_of(shares, [d](double share) {
      const double times = share * static_cast<double>(d);
      return std::fabs(times - std::round(times)) < 1e-10 * static_cast<double>(d) && (share == 0 || times > 0.5);
    });
    if (whole) return d;
  }
  return 0;
}

constexpr std::size_t kMostPhases = 256;

// Earliest due first: the positions of a period.
void fill_period(Mixture::Phase& phase) {
  const std::vector<std::int64_t>& q = phase.per_period;
  std::int64_t period = 0;
  for (const std::int64_t count : q) period += count;
  using Due = std::pair<std::int64_t, std::size_t>;  // position, source
  std::priority_queue<Due, std::vector<Due>, std::greater<>> released, waiting;
  std::vector<std::int64_t> given(q.size(), 0);
  for (std::size_t i = 0; i < q.size(); ++i)
    if (q[i] > 0) waiting.emplace(0, i);
  const auto resize = [&](std::vector<std::uint16_t>& to) { to.resize(static_cast<std::size_t>(period)); };
  resize(phase.source_at), resize(phase.index_at);
  for (std::int64_t at = 0; at < period; ++at) {
    for (; !waiting.empty() && waiting.top().first <= at; waiting.pop()) {
      const std::size_t i = waiting.top().second;
      released.emplace(((given[i] + 1) * period + q[i] - 1) / q[i], i);
    }
    LOCKSTEP_CHECK(!released.empty() && released.top().first > at, "a sample is late at {} of {}", at, period);
    const std::size_t i = released.top().second;
    released.pop();
    phase.source_at[static_cast<std::size_t>(at)] = static_cast<std::uint16_t>(i);
    phase.index_at[static_cast<std::size_t>(at)] = static_cast<std::uint16_t>(given[i]++);
    if (given[i] < q[i]) waiting.emplace(given[i] * period / q[i], i);
  }
}

std::int64_t period_of(const Mixture::Phase& phase) { return std::ssize(phase.source_at); }

// Samples of each source among the first n of a phase.
std::int64_t count_in(const Mixture::Phase& phase, std::size_t source, std::int64_t n) {
  const std::int64_t period = period_of(phase);
  const auto part = phase.source_at.begin() + n % period;
  return n / period * phase.per_period[source] +
         std::count(phase.source_at.begin(), part, static_cast<std::uint16_t>(source));
}

// After how many samples of the phase this source has given `count`, at least 1.
std::int64_t length_until(const Mixture::Phase& phase, std::size_t source, std::int64_t count) {
  const std::int64_t q = phase.per_period[source], period = period_of(phase), index = (count - 1) % q;
  if ((count - 1) / q > (Mixture::kUnlimited >> 2) / period) return Mixture::kUnlimited;
  for (std::int64_t at = 0;; ++at) {
    const auto i = static_cast<std::size_t>(at);
    if (phase.source_at[i] == source && phase.index_at[i] == index) return (count - 1) / q * period + at + 1;
  }
}

}  // namespace

std::vector<std::int64_t> whole_shares(std::span<const double> weights, std::int64_t most) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  LOCKSTEP_CHECK(sum > 0, "{} weights without a sum", weights.size());
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / sum);
  const std::int64_t exact = exact_denominator(shares, most), whole = exact > 0 ? exact : most;
  std::vector<std::int64_t> q;
  std::int64_t given = 0;
  for (const double share : shares) {
    const double times = share * static_cast<double>(whole);
    if (share > 0 && times < 0.5)
      throw UserError(ExitCode::usage, fmt::format("a source's share of the samples is {:.2g}", share),
                      fmt::format("give it a weight of 1/{} of all or more, or leave it out", most));
    q.push_back(share > 0 ? std::max(std::int64_t{1}, static_cast<std::int64_t>(times)) : 0);
    given += q.back();
  }
  // What is left goes to those that rounding took most from; what is too much comes from the largest.
  for (; given < whole; ++given) {
    std::size_t most_lost = 0;
    const auto lost = [&](std::size_t i) { return shares[i] * static_cast<double>(whole) - static_cast<double>(q[i]); };
    for (std::size_t i = 0; i < q.size(); ++i)
      if (lost(i) > lost(most_lost)) most_lost = i;
    ++q[most_lost];
  }
  for (; given > whole; --given) --*std::ranges::max_element(q);
  return q;
}

Mixture::Mixture(std::span<const MixedSource> sources) {
  LOCKSTEP_CHECK(!sources.empty() && sources.size() <= kMostSources, "a mixture of {} sources", sources.size());
  std::vector<std::int64_t> left, before(sources.size(), 0);
  std::vector<std::int64_t> changes;  // of weights
  for (const MixedSource& source : sources) {
    LOCKSTEP_CHECK(source.samples >= 1, "a source of {} samples", source.samples);
    left.push_back(limit_of(source));
    for (const WeightSteps::Step& step : source.weight.steps) changes.push_back(step.from);
  }
  std::ranges::sort(changes);
  for (std::int64_t from = 0;;) {
    std::vector<double> weights;
    for (std::size_t i = 0; i < sources.size(); ++i) weights.push_back(left[i] > 0 ? sources[i].weight.at(from) : 0);
    if (std::ranges::none_of(weights, [](double weight) { return weight > 0; })) {
      samples_ = from;
      return;
    }
    if (phases_.size() == kMostPhases)
      throw UserError(
          ExitCode::usage,
          fmt::format("the weights of the sources change more than {} times, ends of epochs included", kMostPhases),
          "let them change at the same samples, or less often");
    Phase& phase = phases_.emplace_back();
    phase.from = from;
    phase.before = before;
    phase.per_period = whole_shares(weights, kLongestPeriod);
    fill_period(phase);
    const auto next = std::ranges::upper_bound(changes, from);
    std::int64_t until = next == changes.end() ? kUnlimited : *next;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (left[i] == kUnlimited || phase.per_period[i] == 0) continue;
      const std::int64_t length = length_until(phase, i, left[i]);
      if (length < kUnlimited - from) until = std::min(until, from + length);
    }
    if (until == kUnlimited) return;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::int64_t count = count_in(phase, i, until - from);
      before[i] += count;
      if (left[i] != kUnlimited) left[i] -= count;
    }
    from = until;
  }
}

const Mixture::Phase& Mixture::phase_of(std::int64_t n) const {
  const auto after = std::ranges::upper_bound(phases_, n, {}, &Phase::from);
  return *(after - 1);
}

MixturePlace Mixture::place_of(std::int64_t n) const {
  LOCKSTEP_CHECK(n >= 0 && n < samples_, "sample {} of a mixture of {}", n, samples_);
  const Phase& phase = phase_of(n);
  const std::int64_t inside = n - phase.from, period = period_of(phase);
  const auto at = static_cast<std::size_t>(inside % period);
  const std::size_t source = phase.source_at[at];
  return {.source = source,
          .index = phase.before[source] + inside / period * phase.per_period[source] + phase.index_at[at]};
}

std::int64_t Mixture::count(std::size_t source, std::int64_t n) const {
  LOCKSTEP_CHECK(n >= 0 && n <= samples_, "{} samples of a mixture of {}", n, samples_);
  if (n == 0) return 0;
  const Phase& phase = phase_of(n - 1);
  return phase.before[source] + count_in(phase, source, n - phase.from);
}

}  // namespace lockstep
