#include <algorithm>

#include "support/reference_ops.h"

namespace lockstep::tests::reference {

namespace {
struct Dims {
  std::int64_t batch, queries, keys, heads, key_heads, width;
  Dims(const HostTensor& q, const HostTensor& k)
      : batch(q.dim(0)), queries(q.dim(1)), keys(k.dim(1)), heads(q.dim(2)), key_heads(k.dim(2)), width(q.dim(3)) {}

  std::int64_t q(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * queries + t) * heads + h) * width;
  }
  std::int64_t k(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return ((b * keys + s) * key_heads + h / (heads / key_heads)) * width;
  }
  std::int64_t row(std::int64_t b, std::int64_t h, std::int64_t t) const { return (b * heads + h) * queries + t; }
  std::int64_t visible(std::int64_t t, bool causal) const { return causal ? t + keys - queries + 1 : keys; }
  std::int64_t first_visible(std::int64_t b, std::int64_t t, const AttentionOptions& options) const {
    if (!options.starts) return 0;
    const auto start = static_cast<std::int64_t>((*options.starts)[b * queries + t]) - options.first_key;
    return std::clamp<std::int64_t>(start, 0, keys);
  }

  template <class Body>
  void each_row(Body&& body) const {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t t = 0; t < queries; ++t) body(b, h, t);
  }
};

Sum dot(const HostTensor& x, std::int64_t at_x, const HostTensor& y, std::int64_t at_y, std::int64_t width) {
  Sum sum;
  for (std::int64_t d = 0; d < width; ++d) sum.add(x[at_x + d] * y[at_y + d]);
  return sum;
}

double masked(const AttentionOptions& options, std::int64_t row, std::int64_t keys, std::int64_t s) {
  return options.mask ? (*options.mask)[row * keys + s] : 1.0;
}
}  // namespace

void attention_forward(HostTensor& o, HostTensor& lse, const HostTensor& q, const HostTensor& k, const HostTensor& v,
                       const AttentionOptions& options) {
  const Dims dims(q, k);
  o.terms = lse.terms = static_cast<double>(dims.keys + dims.width);
  dims.each_row([&](std::int64_t b, std::int64_t h, std::int64_t t) {
    const std::int64_t seen = dims.visible(t, options.causal), row = dims.row(b, h, t);
    const std::int64_t first = dims.first_visible(b, t, options);
    if (first >= seen) {
      lse.set(row, -INFINITY, 0);
      for (std::int64_t d = 0; d < dims.width; ++d) o.set(dims.q(b, t, h) + d, 0, 0);
      return;
    }
    std::vector<Sum> scores(seen);
    double top = -INFINITY, size = 0;
    for (std::int64_t s = first; s < seen; ++s) {
      scores[s] = dot(q, dims.q(b, t, h), k, dims.k(b, s, h), dims.width);
      scores[s].value *= options.scale;
      scores[s].size *= std::abs(options.scale);
      top = std::max(top, scores[s].value);
      size = std::max(size, scores[s].size);
    }
    double total = 0;
    std::vector<double> p(seen);
    for (std::int64_t s = first; s < seen; ++s) total += p[s] = std::exp(scores[s].value - top);
    lse.set(row, top + std::log(total), 1 + size + std::log(static_cast<double>(seen)));
    for (std::int64_t d = 0; d < dims.width; ++d) {
      Sum sum;
      double narrowed = 0;
      for (std::int64_t s = first; s < seen; ++s) {
        const double term = p[s] / total * masked(options, row, dims.keys, s) * v[dims.k(b, s, h) + d];
        sum.add(term, std::abs(term) * (1 + size));  // a probability is as good as its score
        narrowed += std::abs(term);
      }
      o.set(dims.q(b, t, h) + d, sum.value, sum.size);
      if (options.narrow_terms) o.set_narrowed(dims.q(b, t, h) + d, narrowed);
    }
  });
}

void attention_backward(AttentionGradients gradients, const HostTensor& d_o, const AttentionSaved& saved,
                        const AttentionOptions& options) {
  const auto& [q, k, v, o, lse] = saved;
  const Dims dims(q, k);
  std::vector<Sum> dq(q.value.size()), dk(k.value.size()), dv(v.value.size());
  std::vector<double> narrow_dq(q.value.size()), narrow_dk(k.value.size()), narrow_dv(v.value.size());
  dims.each_row([&](std::int64_t b, std::int64_t h, std::int64_t t) {
    const std::int64_t row = dims.row(b, h, t), at_q = dims.q(b, t, h);
    const Sum delta = dot(d_o, at_q, o, at_q, dims.width);
    for (std::int64_t s = dims.first_visible(b, t, options); s < dims.visible(t, options.causal); ++s) {
      const std::int64_t at_k = dims.k(b, s, h);
      const Sum score = dot(q, at_q, k, at_k, dims.width), dp = dot(d_o, at_q, v, at_k, dims.width);
      const double keep = masked(options, row, dims.keys, s);
      const double p = std::exp(options.scale * score.value - lse[row]);
      const double p_size = p * (1 + std::abs(options.scale) * score.size + std::abs(lse[row]));
      const double ds = options.scale * p * (keep * dp.value - delta.value);
      const double ds_size = std::abs(options.scale) * p_size * (keep * dp.size + delta.size);
      for (std::int64_t d = 0; d < dims.width; ++d) {
        dq[at_q + d].add(ds * k[at_k + d], ds_size * std::abs(k[at_k + d]));
        dk[at_k + d].add(ds * q[at_q + d], ds_size * std::abs(q[at_q + d]));
        dv[at_k + d].add(p * keep * d_o[at_q + d], p_size * keep * std::abs(d_o[at_q + d]));
        narrow_dq[at_q + d] += std::abs(ds * k[at_k + d]);
        narrow_dk[at_k + d] += std::abs(ds * q[at_q + d]);
        narrow_dv[at_k + d] += std::abs(p * keep * d_o[at_q + d]);
      }
    }
  });
  const auto put = [&](HostTensor& t, const std::vector<Sum>& sums, const std::vector<double>& narrow, int roundings) {
    t.terms = static_cast<double>(std::max(dims.keys, dims.queries * dims.heads / dims.key_heads) + dims.width);
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      t.set(i, sums[i].value, sums[i].size);
      if (options.narrow_terms) t.set_narrowed(i, narrow[i] * roundings);
    }
  };
  const int of_keys = dims.heads > dims.key_heads ? 2 : 1;
  put(gradients.dq, dq, narrow_dq, 1);
  put(gradients.dk, dk, narrow_dk, of_keys);
  put(gradients.dv, dv, narrow_dv, of_keys);
}

void attention_merge(HostTensor& o, HostTensor& lse, const HostTensor& part, const HostTensor& part_lse, bool first) {
  const Dims dims(part, part);
  dims.each_row([&](std::int64_t b, std::int64_t h, std::int64_t t) {
    const std::int64_t row = dims.row(b, h, t), at = dims.q(b, t, h);
    const bool old_counts = !first && lse[row] != -INFINITY, part_counts = part_lse[row] != -INFINITY;
    const double old_lse = lse[row];
    if (!old_counts && !part_counts)
      lse.set(row, -INFINITY, 0);
    else if (!old_counts || !part_counts)
      lse.set(row, old_counts ? old_lse : part_lse[row], 0);
    else  // log(e^a + e^b) = a + log(1 + e^(b - a))
      lse.set(row, old_lse + std::log1p(std::exp(part_lse[row] - old_lse)),
              1 + std::abs(old_lse) + std::abs(part_lse[row]));
    for (std::int64_t d = 0; d < dims.width; ++d) {
      Sum sum;
      // A weight is as good as its exponent.
      const auto add = [&](double x, double its_lse) {
        const double term = x * std::exp(its_lse - lse[row]);
        sum.add(term, std::abs(term) * (1 + std::abs(its_lse) + std::abs(lse[row])));
      };
      if (old_counts) add(o[at + d], old_lse);
      if (part_counts) add(part[at + d], part_lse[row]);
      o.set(at + d, sum.value, sum.size);
    }
  });
}

}  // namespace lockstep::tests::reference
