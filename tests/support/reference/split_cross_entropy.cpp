#include <algorithm>
#include <limits>

#include "kernels/cross_entropy.h"
#include "support/reference_ops.h"

namespace lockstep::tests::reference {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }
}  // namespace

void split_cross_entropy_statistics(HostTensor& statistics, const HostTensor& logits, const HostTensor& targets,
                                    SplitColumns columns) {
  const std::int64_t rows = logits.dim(0), width = logits.dim(1);
  statistics.terms = static_cast<double>(columns.valid);
  for (std::int64_t n = 0; n < rows; ++n) {
    const double* row = logits.value.data() + n * width;
    double top = -kInfinity;
    for (std::int64_t v = 0; v < columns.valid; ++v) top = larger(row[v], top);
    Sum total;
    for (std::int64_t v = 0; v < columns.valid && top != -kInfinity; ++v)
      total.add(std::exp(row[v] - top), std::exp(row[v] - top) * (1 + std::abs(row[v] - top)));
    const std::int64_t column = static_cast<std::int64_t>(targets[n]) - columns.first;
    const double hit = column >= 0 && column < columns.valid ? row[column] : 0;
    statistics.set(3 * n, top, 0);
    statistics.set(3 * n + 1, total.value, total.size);
    statistics.set(3 * n + 2, hit, 0);
  }
}

void split_cross_entropy(HostTensor& losses, HostTensor* dlogits, const HostTensor& logits, const HostTensor& targets,
                         const HostTensor& statistics, double scale, SplitColumns columns) {
  const HostTensor in = logits;  // dlogits may be logits
  const std::int64_t ranks = statistics.dim(0), rows = in.dim(0), width = in.dim(1);
  losses.terms = static_cast<double>(ranks);
  if (dlogits) dlogits->terms = static_cast<double>(ranks);
  for (std::int64_t n = 0; n < rows; ++n) {
    const auto of = [&](std::int64_t rank, int which) { return statistics[(rank * rows + n) * 3 + which]; };
    double top = -kInfinity, total = 0, hit = 0;
    for (std::int64_t r = 0; r < ranks; ++r) top = larger(of(r, 0), top);
    for (std::int64_t r = 0; r < ranks; ++r) {
      total += of(r, 1) * std::exp(of(r, 0) - top);
      hit += of(r, 2);
    }
    const bool ignored = targets[n] == kIgnoredTarget;
    if (ignored)
      losses.set(n, 0, 0);
    else
      losses.set(n, std::log(total) + top - hit, 1 + std::abs(std::log(total)) + std::abs(top) + std::abs(hit));
    for (std::int64_t v = 0; dlogits && v < width; ++v) {
      if (ignored || v >= columns.valid) {
        dlogits->set(n * width + v, 0, 0);
        continue;
      }
      const double x = in[n * width + v], p = std::exp(x - top) / total;
      Sum gradient;
      gradient.add(scale * p, std::abs(scale) * p * (1 + std::abs(x - top)));
      if (static_cast<double>(columns.first + v) == targets[n]) gradient.add(-scale);
      dlogits->set(n * width + v, gradient.value, gradient.size);
    }
  }
}

}  // namespace lockstep::tests::reference
