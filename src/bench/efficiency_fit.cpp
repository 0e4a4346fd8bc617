#include "bench/efficiency_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace lockstep {

namespace {

constexpr double kMostShare = 2, kLeastShare = 1e-3;  // as machine files take them
constexpr double kMostHalf = 1e4;

// Of 0 and a geometric grid, where the function is least. The functions here have one valley along each axis, and times
// are known to some percent: a finer grid would fit noise.
double least_of(const std::function<double(double)>& f) {
  double at = 0, least = f(0);
  for (double x = 0.25; x <= kMostHalf; x *= 1.1)
    if (const double value = f(x); value < least) {
      least = value;
      at = x;
    }
  return at;
}

double share_within(double share) { return std::clamp(share, kLeastShare, kMostShare); }

}  // namespace

MachineSpec::Products fit_products(std::span<const ProductTiming> timings, double peak) {
  MachineSpec::Products fit{.best = 1};
  double* const halves[] = {&fit.half_m, &fit.half_n, &fit.half_k};
  // The logarithm of what the curve is short of each measured share; the mean is the best that fits.
  const auto misses = [&] {
    double sum = 0, squares = 0;
    for (const ProductTiming& t : timings) {
      const auto of = [](std::int64_t size) { return static_cast<double>(size); };
      const double miss = std::log(t.flops() / t.seconds / peak / fit.share(of(t.m), of(t.n), of(t.k)));
      sum += miss;
      squares += miss * miss;
    }
    const double mean = sum / static_cast<double>(timings.size());
    return std::pair{mean, squares - sum * mean};
  };
  constexpr int kSweeps = 30;
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (double* const half : halves)
      *half = least_of([&](double value) {
        *half = value;
        return misses().second;
      });
  fit.best = share_within(std::exp(misses().first));
  return fit;
}

MachineSpec::Attention fit_attention(std::span<const AttentionTiming> timings, double peak) {
  MachineSpec::Attention fit;
  double half = 0;
  const auto misses = [&](bool backward) {
    double sum = 0, squares = 0;
    for (const AttentionTiming& t : timings) {
      const double tokens = static_cast<double>(t.tokens);
      const double rate = backward ? t.backward_flops / t.backward : t.forward_flops / t.forward;
      const double miss = std::log(rate / peak * (tokens + half) / tokens);
      sum += miss;
      squares += miss * miss;
    }
    const double mean = sum / static_cast<double>(timings.size());
    return std::pair{mean, squares - sum * mean};
  };
  fit.half_pairs = least_of([&](double value) {
    half = value;
    return misses(false).second + misses(true).second;
  });
  half = fit.half_pairs;
  fit.forward = share_within(std::exp(misses(false).first));
  fit.backward = share_within(std::exp(misses(true).first));
  return fit;
}

}  // namespace lockstep
