#include "train/batch_buffers.h"

#include <algorithm>
#include <numeric>

#include "kernels/cross_entropy.h"
#include "kernels/rope.h"
#include "tensor/transfer.h"
#include "train/host_values.h"

namespace lockstep {

BatchBuffers::BatchBuffers(const ModelSpec& spec, const Sizes& sizes, const Ranks& ranks, Memory& memory,
                           Stream& stream)
    : spec_(spec), sizes_(sizes), ranks_(ranks) {
  const std::int64_t T = sizes.tokens(), tokens = sizes.B * T, losses = sizes.loss_B * T;
  tokens_ = memory.allocate(tokens * 4, Tag::data);
  targets_ = memory.allocate(losses * 4, Tag::data);
  losses_ = memory.allocate(losses * size_of(sizes.sums), Tag::data);
  positions_ = memory.allocate(T * 4, Tag::data);
  loss_scale_ = memory.allocate(8, Tag::data);
  if (sizes.scaled) scaled_ = memory.allocate(8, Tag::data);
  if (memory.device() != Device::meta)
    for (Place& place : places_) {
      place.tokens = HostBuffer(tokens * 4, stream);
      place.targets = HostBuffer(losses * 4, stream);
      place.loss_scale = HostBuffer(8, stream);
      place.losses = HostBuffer(losses * size_of(sizes.sums), stream);
    }
  if (memory.device() != Device::meta) {
    std::vector<std::int32_t> positions(T);
    for (std::int64_t t = 0; t < T; ++t)
      positions[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(sizes.context.position(sizes.T, t));
    upload(view(positions_, DType::i32, {T}), positions.data(), stream);
  }
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

std::int64_t BatchBuffers::valid_targets(std::span<const std::int32_t> targets) const {
  LOCKSTEP_CHECK(std::ssize(targets) == sizes_.loss_B * sizes_.T, "{} targets for {} samples of {}", targets.size(),
                 sizes_.loss_B, sizes_.T);
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < sizes_.loss_B * sizes_.tokens(); ++i)
    if (targets[static_cast<std::size_t>(place_of(i))] != kIgnoredTarget) ++valid;
  return valid;
}

void BatchBuffers::set(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place,
                       Stream& stream) {
  first_sample_ = sizes_.first;
  const bool meta = stream.device() == Device::meta;
  std::int64_t valid = meta ? 0 : valid_targets(targets);
  sum_over(ranks_.replicas, valid);
  const std::int64_t summed_here = valid;
  sum_over(ranks_.others, valid);
  places_[place].valid_targets = valid;
  if (!meta) take(tokens, targets, summed_here, place, stream);
}

void BatchBuffers::set_apart(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                             std::int64_t first, int place, Stream& stream) {
  first_sample_ = first;
  if (stream.device() == Device::meta) return;
  const std::int64_t valid = valid_targets(targets);
  places_[place].valid_targets = valid;
  take(tokens, targets, valid, place, stream);
}

// `summed_over`: the targets that the gradient's sum is divided by.
void BatchBuffers::take(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                        std::int64_t summed_over, int place, Stream& stream) {
  LOCKSTEP_CHECK(std::ssize(tokens) == sizes_.B * sizes_.T, "{} tokens for {} samples of {}", tokens.size(), sizes_.B,
                 sizes_.T);
  Place& at = places_[place];
  const std::int64_t T = sizes_.tokens(), count = sizes_.B * T, losses = sizes_.loss_B * T;
  const auto put = [&](std::span<std::int32_t> here, std::span<const std::int32_t> all) {
    for (std::size_t i = 0; i < here.size(); ++i)
      here[i] = all[static_cast<std::size_t>(place_of(static_cast<std::int64_t>(i)))];
  };
  put(at.tokens.as<std::int32_t>(), tokens);
  put(at.targets.as<std::int32_t>(), targets);
  // A batch without a target has loss and gradient zero.
  const double scale = summed_over > 0 ? 1.0 / static_cast<double>(summed_over) : 0.0;
  if (sizes_.sums == DType::f64)
    at.loss_scale.as<double>()[0] = scale;
  else
    at.loss_scale.as<float>()[0] = static_cast<float>(scale);
  upload_later(view(tokens_, DType::i32, {count}), at.tokens.as<char>().data(), stream);
  upload_later(view(targets_, DType::i32, {losses}), at.targets.as<char>().data(), stream);
  upload_later(view(loss_scale_, sizes_.sums, {1}), at.loss_scale.as<char>().data(), stream);
}

void BatchBuffers::scale_loss(const ConstTensor& control, Stream& stream) {
  if (!sizes_.scaled) return;
  lockstep::scale_loss({.scaled = loss_scale(), .weight = view(loss_scale_, sizes_.sums, {1}), .control = control},
                       stream);
}

std::int64_t BatchBuffers::place_of(std::int64_t i) const {
  const std::int64_t T = sizes_.tokens();
  return i / T * sizes_.T + sizes_.context.position(sizes_.T, i % T);
}

Batch BatchBuffers::micro_batch(int m, std::uint64_t dropout_seed, bool training) const {
  const std::int64_t B = sizes_.B / sizes_.micro, T = sizes_.tokens(), first = m * B;
  const bool own_losses = sizes_.loss_B == sizes_.B;
  Batch batch{.tokens = view(tokens_, DType::i32, {B, T}, first * T),
              .targets = own_losses ? view(targets_, DType::i32, {B * T}, first * T) : Tensor{},
              .positions = view(positions_, DType::i32, {T}),
              .loss_scale = loss_scale(),
              .losses = own_losses ? view(losses_, sizes_.sums, {B * T}, first * T) : Tensor{},
              .first_sample = first_sample_ + first,
              .dropout_seed = dropout_seed,
              .training = training,
              .micro = m};
  if (own_losses && !training) batch.likeliest = view(targets_, DType::i32, {B * T}, first * T);
  if (cos_.memory()) {
    const Shape shape{T, spec_.head_width / 2};
    batch.rope_cos = view(cos_, sizes_.sums, shape);
    batch.rope_sin = view(sin_, sizes_.sums, shape);
  }
  return batch;
}

RemoteLoss::Tensors BatchBuffers::loss_tensors() const {
  const std::int64_t count = sizes_.loss_B * sizes_.tokens();
  return {.targets = view(targets_, DType::i32, {count}),
          .scale = loss_scale(),
          .losses = view(losses_, sizes_.sums, {count}),
          .likeliest = view(targets_, DType::i32, {count})};
}

void BatchBuffers::fetch_losses(int place, Stream& stream) {
  if (stream.device() == Device::meta || !sizes_.has_head) return;
  download_later(places_[place].losses.as<char>().data(), view(losses_, sizes_.sums, {sizes_.loss_B * sizes_.tokens()}),
                 stream);
}

void BatchBuffers::fetch_likeliest(int place, Stream& stream) {
  if (stream.device() == Device::meta || !sizes_.has_head) return;
  download_later(places_[place].targets.as<char>().data(),
                 view(targets_, DType::i32, {sizes_.loss_B * sizes_.tokens()}), stream);
}

double BatchBuffers::own_losses(int place) const {
  const Place& at = places_[place];
  const auto sum = [](const auto& losses) { return std::accumulate(losses.begin(), losses.end(), 0.0); };
  if (!sizes_.has_head) return 0;
  return sizes_.sums == DType::f64 ? sum(at.losses.as<double>()) : sum(at.losses.as<float>());
}

double BatchBuffers::mean(int place, double total) const {
  const std::int64_t valid = places_[place].valid_targets;
  return valid == 0 ? 0 : total / static_cast<double>(valid);
}

double BatchBuffers::mean_loss(int place) const {
  double total = own_losses(place);
  sum_over(ranks_.replicas, total);
  sum_over(ranks_.others, total);
  sum_over(ranks_.stages, total);  // of which one has it
  return mean(place, total);
}

BatchBuffers::OwnLosses BatchBuffers::losses_apart(int place) const {
  OwnLosses own{.sum = own_losses(place), .targets = places_[place].valid_targets};
  sum_over(ranks_.stages, own.sum);  // of which one has it
  return own;
}

BatchBuffers::Evaluated BatchBuffers::evaluated(int place) const {
  std::array<double, 2> totals{own_losses(place)};
  // A target that is ignored keeps its own mark.
  if (sizes_.has_head)
    totals[1] = static_cast<double>(std::ranges::count(places_[place].targets.as<std::int32_t>(), 1));
  sum_over(ranks_.replicas, totals);
  sum_over(ranks_.others, totals);
  sum_over(ranks_.stages, totals);
  return {.loss = mean(place, totals[0]),
          .likeliest = static_cast<std::int64_t>(totals[1]),
          .targets = places_[place].valid_targets};
}

}  // namespace lockstep
