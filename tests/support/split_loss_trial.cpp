#include "support/split_loss_trial.h"

#include <algorithm>
#include <limits>

#include "kernels/split_cross_entropy.h"
#include "support/host_tensor.h"
#include "support/recipes.h"
#include "support/reference_ops.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

namespace {
constexpr std::int64_t N = 6;

class SplitLossRun {
 public:
  SplitLossRun(const SplitLossTrial& trial, Memory& memory, Stream& stream)
      : t_(trial), memory_(memory), stream_(stream), logits_("logits", {N, t_.vocabulary}, t_.type) {
    // Equal logits, impossible words (all of the first part's), an ignored target, and the ends of parts as targets.
    const auto last = static_cast<std::int32_t>(t_.vocabulary - 1);
    targets_ = {
        last / 3, kIgnoredTarget, last, last, 0, static_cast<std::int32_t>(std::min(t_.vocabulary, t_.part)) - 1};
    for (std::int64_t i = 0; i < logits_.elements(); ++i)
      logits_.value[i] = i / t_.vocabulary == 3 ? 2.5 : round_to(t_.type, 3 * normal_number(17, i));
  }

  std::string run() {
    const DType wide = accumulator_of(t_.type);
    HostTensor losses("losses", {N}, wide), dlogits("dlogits", {N, t_.vocabulary}, t_.to),
        at("targets", {N}, DType::i32), in = logits_;
    for (std::int64_t n = 0; n < N; ++n) at.value[n] = targets_[n];
    for (std::int64_t v = 0; v < first_is_impossible(); ++v) in.value[2 * t_.vocabulary + v] = -1e30;
    const double scale = round_to(wide, t_.to == DType::f16 ? 100.0 : 1.0 / 7);
    reference::cross_entropy(losses, &dlogits, in, at, scale);

    const Tensor targets = tensor(DType::i32, {N}), weight = tensor(wide, {1}, {scale}),
                 statistics = tensor(wide, {t_.parts, N, kLossStatistics});
    upload(targets, targets_.data(), stream_);
    for (std::int64_t part = 0; part < t_.parts; ++part)
      split_cross_entropy_statistics({.statistics = statistics.slice(0, part, 1).reshape({N, kLossStatistics}),
                                      .logits = logits_of(part),
                                      .targets = targets,
                                      .first = first_of(part),
                                      .valid = valid_of(part)},
                                     stream_);
    std::vector<double> all_losses;
    for (std::int64_t part = 0; part < t_.parts; ++part) {
      std::vector<double> apart;
      const Tensor marks = tensor(DType::i32, {N});
      upload(marks, targets_.data(), stream_);
      for (const bool over : {false, true}) {
        const Tensor out = tensor(wide, {N}), x = logits_of(part),
                     dx = over ? x.narrowed(t_.to) : tensor(t_.to, {N, t_.part});
        split_cross_entropy({.losses = out,
                             .dlogits = dx,
                             .logits = x,
                             .targets = targets,
                             .statistics = statistics,
                             .scale = weight,
                             .first = first_of(part),
                             .valid = valid_of(part)},
                            stream_);
        HostTensor got("losses", {N}, wide);
        got.value = to_doubles(out, stream_);
        if (all_losses.empty()) all_losses = got.value;
        if (got.value != all_losses) return fmt::format("part {} has losses of its own", part);
        if (const std::string wrong = difference(got, losses, wide); !wrong.empty()) return wrong;
        const std::vector<double> gradients = rows_of(dx);
        if (const std::string wrong = compare(gradients, dlogits, part); !wrong.empty()) return wrong;
        if (over && gradients != apart) return fmt::format("part {} has other gradients in place", part);
        apart = gradients;
      }
      split_cross_entropy({.losses = tensor(wide, {N}),
                           .dlogits = {},
                           .logits = logits_of(part),
                           .targets = marks,
                           .statistics = statistics,
                           .scale = weight,
                           .first = first_of(part),
                           .valid = valid_of(part),
                           .likeliest = marks},
                          stream_);
      if (const std::string wrong = compare_marks(marks, in); !wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  std::int64_t first_is_impossible() const { return t_.parts > 1 ? std::min(t_.part, t_.vocabulary - 1) : 0; }
  std::int64_t first_of(std::int64_t part) const { return part * t_.part; }
  std::int64_t valid_of(std::int64_t part) const {
    return std::clamp<std::int64_t>(t_.vocabulary - first_of(part), 0, t_.part);
  }

  Tensor tensor(DType dtype, const Shape& shape, const std::vector<double>& values = {}) {
    buffers_.push_back(memory_.allocate(std::max<std::int64_t>(1, shape.elements()) * size_of(dtype), Tag::data));
    const Tensor made = view(buffers_.back(), dtype, shape);
    std::vector<std::byte> bytes(static_cast<std::size_t>(made.bytes()), std::byte{0xff});
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(bytes.data() + i * static_cast<std::size_t>(size_of(dtype)), dtype, values[i]);
    upload(made, bytes.data(), stream_);
    return made;
  }

  // A part's logits, NaN in its padding.
  Tensor logits_of(std::int64_t part) {
    std::vector<double> values(static_cast<std::size_t>(N * t_.part), std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t v = 0; v < valid_of(part); ++v)
        values[n * t_.part + v] = n == 2 && first_of(part) + v < first_is_impossible()
                                      ? -std::numeric_limits<double>::infinity()
                                      : logits_[n * t_.vocabulary + first_of(part) + v];
    return tensor(t_.type, {N, t_.part}, values);
  }

  // The elements of rows that may lie apart.
  std::vector<double> rows_of(const Tensor& t) {
    std::vector<double> all;
    for (std::int64_t n = 0; n < N; ++n) {
      const std::vector<double> row = to_doubles(t.slice(0, n, 1).reshape({t.dim(1)}), stream_);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  std::string compare_marks(const Tensor& marks, const HostTensor& whole) {
    std::vector<std::int32_t> got(N);
    download(got.data(), marks, stream_);
    for (std::int64_t n = 0; n < N; ++n) {
      const double* row = whole.value.data() + n * t_.vocabulary;
      const auto hit = [&] { return row[targets_[n]]; };
      const std::int32_t want = targets_[n] == kIgnoredTarget
                                    ? kIgnoredTarget
                                    : std::all_of(row, row + t_.vocabulary, [&](double v) { return v <= hit(); });
      if (got[n] != want) return fmt::format("row {} has the mark {} for {}", n, got[n], want);
    }
    return "";
  }

  std::string compare(const std::vector<double>& got, const HostTensor& whole, std::int64_t part) const {
    const std::int64_t valid = valid_of(part);
    HostTensor want("dlogits", {N, t_.part}, t_.to), mine = want;
    want.terms = whole.terms;
    mine.value = got;
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t v = 0; v < t_.part; ++v) {
        const std::int64_t from = n * t_.vocabulary + first_of(part) + v;
        want.set(n * t_.part + v, v < valid ? whole[from] : 0, v < valid ? whole.magnitude[from] : 0);
        if (v >= valid && got[n * t_.part + v] != 0) return fmt::format("part {} has a gradient in its padding", part);
      }
    return difference(mine, want, accumulator_of(t_.type));
  }

  SplitLossTrial t_;
  Memory& memory_;
  Stream& stream_;
  HostTensor logits_;
  std::vector<std::int32_t> targets_;
  std::vector<Buffer> buffers_;
};
}  // namespace

std::string try_split_loss(const SplitLossTrial& trial, Memory& memory, Stream& stream) {
  return SplitLossRun(trial, memory, stream).run();
}

}  // namespace lockstep::tests
