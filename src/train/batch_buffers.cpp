#include "train/batch_buffers.h"

#include <algorithm>
#include <numeric>

#include "kernels/cross_entropy.h"
#include "kernels/rope.h"
#include "tensor/transfer.h"

namespace lockstep {

BatchBuffers::BatchBuffers(const ModelSpec& spec, const Sizes& sizes, Memory& memory, Stream& stream)
    : spec_(spec), sizes_(sizes) {
  const std::int64_t tokens = sizes.B * sizes.T, T = sizes.T;
  tokens_ = memory.allocate(tokens * 4, Tag::data);
  targets_ = memory.allocate(tokens * 4, Tag::data);
  losses_ = memory.allocate(tokens * size_of(sizes.sums), Tag::data);
  positions_ = memory.allocate(T * 4, Tag::data);
  loss_scale_ = memory.allocate(8, Tag::data);
  if (memory.device() != Device::meta) {
    host_losses_.resize(sizes.sums == DType::f64 ? tokens : 0);
    narrow_losses_.resize(sizes.sums == DType::f64 ? 0 : tokens);
  }
  std::vector<std::int32_t> positions(T);
  std::iota(positions.begin(), positions.end(), 0);
  upload(view(positions_, DType::i32, {T}), positions.data(), stream);
  if (spec.positions != PositionKind::rope) return;
  const Shape shape{T, spec.head_width / 2};
  cos_ = memory.allocate(shape.elements() * size_of(sizes.sums), Tag::data);
  sin_ = memory.allocate(shape.elements() * size_of(sizes.sums), Tag::data);
  RopeTableArgs args{.cos = view(cos_, sizes.sums, shape),
                     .sin = view(sin_, sizes.sums, shape),
                     .positions = view(positions_, DType::i32, {T}),
                     .theta = spec.rope_theta};
  if (const auto& s = spec.rope_scaling)
    args.slowing =
        RopeSlowing{s->factor, s->low_freq_factor, s->high_freq_factor, static_cast<double>(s->original_positions)};
  rope_table(args, stream);
}

void BatchBuffers::set(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, Stream& stream) {
  const std::int64_t count = sizes_.B * sizes_.T;
  LOCKSTEP_CHECK(std::ssize(tokens) == count && std::ssize(targets) == count, "{} tokens and {} targets for {} x {}",
                 tokens.size(), targets.size(), sizes_.B, sizes_.T);
  upload(view(tokens_, DType::i32, {count}), tokens.data(), stream);
  upload(view(targets_, DType::i32, {count}), targets.data(), stream);
  valid_targets_ = std::ranges::count_if(targets, [](std::int32_t t) { return t != kIgnoredTarget; });
  // A batch without a target has loss and gradient zero.
  const double scale = valid_targets_ > 0 ? 1.0 / static_cast<double>(valid_targets_) : 0.0;
  const float narrow = static_cast<float>(scale);
  upload(view(loss_scale_, sizes_.sums, {1}), sizes_.sums == DType::f64 ? static_cast<const void*>(&scale) : &narrow,
         stream);
}

Batch BatchBuffers::micro_batch(int m, std::uint64_t dropout_seed, bool training) const {
  const std::int64_t B = sizes_.B / sizes_.micro, T = sizes_.T, first = m * B;
  Batch batch{.tokens = view(tokens_, DType::i32, {B, T}, first * T),
              .targets = view(targets_, DType::i32, {B * T}, first * T),
              .positions = view(positions_, DType::i32, {T}),
              .loss_scale = view(loss_scale_, sizes_.sums, {1}),
              .losses = view(losses_, sizes_.sums, {B * T}, first * T),
              .first_sample = first,
              .dropout_seed = dropout_seed,
              .training = training};
  if (cos_.memory()) {
    const Shape shape{T, spec_.head_width / 2};
    batch.rope_cos = view(cos_, sizes_.sums, shape);
    batch.rope_sin = view(sin_, sizes_.sums, shape);
  }
  return batch;
}

double BatchBuffers::mean_loss(Stream& stream) {
  const Tensor losses = view(losses_, sizes_.sums, {sizes_.B * sizes_.T});
  if (losses.device() == Device::meta) return 0;
  double total = 0;
  if (sizes_.sums == DType::f64) {
    download(host_losses_.data(), losses, stream);
    total = std::accumulate(host_losses_.begin(), host_losses_.end(), 0.0);
  } else {
    download(narrow_losses_.data(), losses, stream);
    total = std::accumulate(narrow_losses_.begin(), narrow_losses_.end(), 0.0);
  }
  return valid_targets_ > 0 ? total / static_cast<double>(valid_targets_) : 0;
}

}  // namespace lockstep
