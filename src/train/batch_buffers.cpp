#include "train/batch_buffers.h"

#include <algorithm>
#include <numeric>

#include "data/dataset.h"
#include "kernels/cross_entropy.h"
#include "kernels/host_store.h"
#include "kernels/rope.h"
#include "tensor/transfer.h"
#include "train/host_values.h"

namespace lockstep {

static_assert(kNoTarget == kIgnoredTarget);

BatchBuffers::BatchBuffers(const ModelSpec& spec, const Sizes& sizes, const Ranks& ranks, Memory& memory,
                           Stream& stream)
    : spec_(spec), sizes_(sizes), ranks_(ranks), valid_(static_cast<std::size_t>(scales())) {
  const std::int64_t T = sizes.tokens(), tokens = sizes.B * T, losses = sizes.loss_B * T;
  const std::int64_t attended = sizes.documents ? sizes.B * sizes.context.share(sizes.T) : 0;
  const std::int64_t batches = sizes.overlaps ? kPlaces : 1;
  tokens_ = memory.allocate(batches * tokens * 4, Tag::data);
  targets_ = memory.allocate(batches * losses * 4, Tag::data);
  losses_ = memory.allocate(batches * losses * size_of(sizes.sums), Tag::data);
  positions_ = memory.allocate(T * 4, Tag::data);
  loss_scale_ = memory.allocate(batches * scales() * 8, Tag::data);
  if (sizes.documents) {
    in_document_ = memory.allocate(batches * tokens * 4, Tag::data);
    starts_ = memory.allocate(batches * attended * 4, Tag::data);
    row_starts_.resize(static_cast<std::size_t>(sizes.varlen ? sizes.B / sizes.micro * sizes.T : sizes.T));
  }
  LOCKSTEP_CHECK(!sizes.varlen || (sizes.documents && (sizes.loss_B == sizes.B || sizes.loss_B == 0)),
                 "samples without padding, of which {} of {} have their losses here", sizes.loss_B, sizes.B);
  if (sizes.scaled) scaled_ = memory.allocate(8, Tag::data);
  const BatchRows::Sizes of_batch{.B = sizes.B,
                                  .T = sizes.T,
                                  .micro = sizes.micro,
                                  .context = sizes.context,
                                  .varlen = sizes.varlen,
                                  .least = sizes.least_tokens,
                                  .expected = sizes.expected_tokens};
  for (Place& place : places_) {
    place.rows = BatchRows(of_batch);
    if (sizes.loss_B != sizes.B)
      place.others_rows = BatchRows({.B = sizes.loss_B, .T = sizes.T, .micro = sizes.micro, .context = sizes.context});
  }
  if (memory.device() != Device::meta)
    for (Place& place : places_) {
      place.tokens = HostBuffer(tokens * 4, stream);
      place.targets = HostBuffer(losses * 4, stream);
      place.loss_scale = HostBuffer(scales() * 8, stream);
      place.losses = HostBuffer(losses * size_of(sizes.sums), stream);
      if (!sizes.documents) continue;
      place.in_document = HostBuffer(tokens * 4, stream);
      place.starts = HostBuffer(attended * 4, stream);
    }
  if (memory.device() != Device::meta) {
    std::vector<std::int32_t> positions(T);
    for (std::int64_t t = 0; t < T; ++t)
      positions[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(sizes.context.position(sizes.T, t));
    upload(view(positions_, DType::i32, {T}), positions.data(), stream);
  }
  if (spec.positions != PositionKind::rope) return;
  // Documents have positions from 0 on wherever they are, so that a rank needs the angles of all.
  const std::int64_t rows = sizes.documents ? sizes.T : T;
  if (sizes.documents) {
    every_position_ = memory.allocate(rows * 4, Tag::data);
    if (memory.device() != Device::meta) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(rows));
      std::iota(all.begin(), all.end(), 0);
      upload(view(every_position_, DType::i32, {rows}), all.data(), stream);
    }
  }
  const Shape shape{rows, spec.head_width / 2};
  cos_ = memory.allocate(shape.elements() * size_of(sizes.sums), Tag::data);
  sin_ = memory.allocate(shape.elements() * size_of(sizes.sums), Tag::data);
  RopeTableArgs args{.cos = view(cos_, sizes.sums, shape),
                     .sin = view(sin_, sizes.sums, shape),
                     .positions = view(sizes.documents ? every_position_ : positions_, DType::i32, {rows}),
                     .theta = spec.rope_theta};
  if (const auto& s = spec.rope_scaling)
    args.slowing =
        RopeSlowing{s->factor, s->low_freq_factor, s->high_freq_factor, static_cast<double>(s->original_positions)};
  rope_table(args, stream);
}

void BatchBuffers::set(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place,
                       Stream& stream) {
  first_sample_ = sizes_.first;
  place_ = place;
  const bool meta = stream.device() == Device::meta;
  Place& at = places_[place];
  if (!meta) {
    at.rows.find(tokens);
    count_targets(targets, place);
  }
  sum_over(ranks_.replicas, std::span(valid_));
  at.valid_targets = std::accumulate(valid_.begin(), valid_.end(), std::int64_t{0});
  sum_over(ranks_.others, at.valid_targets);
  if (!meta) take(tokens, targets, place, stream);
}

void BatchBuffers::set_apart(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                             std::int64_t first, int place, Stream& stream) {
  first_sample_ = first;
  place_ = place;
  if (stream.device() == Device::meta) return;
  places_[place].rows.find(tokens);
  count_targets(targets, place);
  places_[place].valid_targets = std::accumulate(valid_.begin(), valid_.end(), std::int64_t{0});
  take(tokens, targets, place, stream);
}

// The gradient's sum is divided by the targets that were counted.
void BatchBuffers::take(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place,
                        Stream& stream) {
  LOCKSTEP_CHECK(std::ssize(tokens) == sizes_.B * sizes_.T, "{} tokens for {} samples of {}", tokens.size(), sizes_.B,
                 sizes_.T);
  Place& at = places_[place];
  // What is no row of a micro-batch keeps `otherwise`, as do its rows of padding.
  const auto put = [](std::span<std::int32_t> here, std::span<const std::int32_t> all, const BatchRows& rows,
                      std::int32_t otherwise) {
    for (int m = 0; m < rows.micros(); ++m) {
      const std::span micro =
          here.subspan(static_cast<std::size_t>(m * rows.room()), static_cast<std::size_t>(rows.room()));
      for (std::int64_t i = 0; i < rows.room(); ++i) {
        const std::int64_t from = i < rows.count(m) ? rows.place(m, i) : BatchRows::kNone;
        micro[static_cast<std::size_t>(i)] = from < 0 ? otherwise : all[static_cast<std::size_t>(from)];
      }
    }
  };
  put(at.tokens.as<std::int32_t>(), tokens, at.rows, 0);
  if (sizes_.documents && sizes_.B > 0) set_documents(tokens, place, stream);
  put(at.targets.as<std::int32_t>(), targets, loss_rows(place), kIgnoredTarget);
  // A batch without a target has loss and gradient zero.
  for (std::size_t i = 0; i < valid_.size(); ++i) {
    const double scale = valid_[i] > 0 ? 1.0 / static_cast<double>(valid_[i]) : 0.0;
    if (sizes_.sums == DType::f64)
      at.loss_scale.as<double>()[i] = scale;
    else
      at.loss_scale.as<float>()[i] = static_cast<float>(scale);
  }
  upload_later(this->tokens(kept(place)), at.tokens.as<char>().data(), stream);
  upload_later(this->targets(kept(place)), at.targets.as<char>().data(), stream);
  upload_later(view(loss_scale_, sizes_.sums, {scales()}, kept(place) * scales()), at.loss_scale.as<char>().data(),
               stream);
}

void BatchBuffers::count_targets(std::span<const std::int32_t> targets, int place) {
  LOCKSTEP_CHECK(std::ssize(targets) == sizes_.loss_B * sizes_.T, "{} targets for {} samples of {}", targets.size(),
                 sizes_.loss_B, sizes_.T);
  std::ranges::fill(valid_, 0);
  const BatchRows& rows = loss_rows(place);
  for (int m = 0; m < rows.micros(); ++m)
    for (std::int64_t i = 0; i < rows.count(m); ++i)
      if (const std::int64_t from = rows.place(m, i);
          from >= 0 && targets[static_cast<std::size_t>(from)] != kIgnoredTarget)
        ++valid_[sizes_.by_micro_batch ? static_cast<std::size_t>(m) : 0];
}

Tensor BatchBuffers::tokens(int kept) const {
  const std::int64_t count = sizes_.B * sizes_.tokens();
  return view(tokens_, DType::i32, {count}, kept * count);
}

Tensor BatchBuffers::targets(int kept) const {
  const std::int64_t count = sizes_.loss_B * sizes_.tokens();
  return view(targets_, DType::i32, {count}, kept * count);
}

Tensor BatchBuffers::losses(int kept) const {
  const std::int64_t count = sizes_.loss_B * sizes_.tokens();
  return view(losses_, sizes_.sums, {count}, kept * count);
}

// Attention's rows are samples, or, without padding, micro-batches.
void BatchBuffers::set_documents(std::span<const std::int32_t> tokens, int place, Stream& stream) {
  Place& at = places_[place];
  const std::span own = at.tokens.as<std::int32_t>(), in_document = at.in_document.as<std::int32_t>(),
                  starts = at.starts.as<std::int32_t>();
  for (std::int32_t& token : own) token &= ~kBeginsDocument;
  const std::int64_t rows = sizes_.varlen ? sizes_.micro : sizes_.B;
  const std::int64_t room = sizes_.B * sizes_.tokens() / rows,
                     share_room = sizes_.B * sizes_.context.share(sizes_.T) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t T = sizes_.varlen ? at.rows.whole(static_cast<int>(row)) : sizes_.T;
    find_starts(tokens, place, row, T);
    for (std::int64_t t = 0; t < sizes_.context.tokens(T); ++t) {
      const std::int64_t position = sizes_.context.position(T, t);
      in_document[static_cast<std::size_t>(row * room + t)] =
          static_cast<std::int32_t>(position) - row_starts_[static_cast<std::size_t>(position)];
    }
    for (std::int64_t t = 0; t < sizes_.context.share(T); ++t)
      starts[static_cast<std::size_t>(row * share_room + t)] =
          row_starts_[static_cast<std::size_t>(sizes_.context.share_position(T, t))];
  }
  const std::int64_t first = kept(place) * rows;
  upload_later(view(in_document_, DType::i32, {rows * room}, first * room), at.in_document.as<char>().data(), stream);
  upload_later(view(starts_, DType::i32, {rows * share_room}, first * share_room), at.starts.as<char>().data(), stream);
}

// A sample begins a document, and so does each token of padding.
void BatchBuffers::find_starts(std::span<const std::int32_t> tokens, int place, std::int64_t row, std::int64_t T) {
  const BatchRows& rows = places_[static_cast<std::size_t>(place)].rows;
  std::int32_t start = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t from = sizes_.varlen ? rows.place_in_whole(static_cast<int>(row), t) : row * sizes_.T + t;
    if (from < 0 || from % sizes_.T == 0 || (tokens[static_cast<std::size_t>(from)] & kBeginsDocument))
      start = static_cast<std::int32_t>(t);
    row_starts_[static_cast<std::size_t>(t)] = start;
  }
}

void BatchBuffers::scale_loss(const ConstTensor& control, Stream& stream) {
  if (!sizes_.scaled) return;
  lockstep::scale_loss({.scaled = loss_scale(0, 0), .weight = view(loss_scale_, sizes_.sums, {1}), .control = control},
                       stream);
}

Batch BatchBuffers::micro_batch(int m, std::uint64_t dropout_seed, bool training, int before) const {
  const BatchRows& rows = rows_before(before);
  const std::int64_t samples = sizes_.B / sizes_.micro, B = sizes_.varlen ? 1 : samples, tokens = rows.count(m),
                     T = tokens / B, first = m * rows.room();
  const bool own_losses = sizes_.loss_B == sizes_.B;
  const int at = kept((place_ + before) % kPlaces);
  const auto part = [&](const Tensor& all) { return own_losses ? all.slice(0, first, tokens) : Tensor{}; };
  Batch batch{.tokens = this->tokens(at).slice(0, first, tokens).reshape({B, T}),
              .targets = part(targets(at)),
              .positions = sizes_.varlen ? ConstTensor{} : view(positions_, DType::i32, {T}),
              .loss_scale = loss_scale(at, m),
              .losses = part(losses(at)),
              .first_sample = first_sample_ + m * samples,
              .dropout_seed = dropout_seed,
              .training = training,
              .micro = m};
  if (!training) batch.likeliest = part(targets(at));
  if (sizes_.documents) {
    // As many as tokens here, for each rank that heads are exchanged with.
    const std::int64_t heads = sizes_.context.heads, place = at * sizes_.B * sizes_.tokens() + first;
    batch.in_document = view(in_document_, DType::i32, {B, T}, place);
    batch.starts = view(starts_, DType::i32, {B, T * heads}, place * heads);
  }
  if (cos_.memory()) {
    const Shape shape{sizes_.documents ? sizes_.T : T, spec_.head_width / 2};
    batch.rope_cos = view(cos_, sizes_.sums, shape);
    batch.rope_sin = view(sin_, sizes_.sums, shape);
  }
  return batch;
}

RemoteLoss::Tensors BatchBuffers::loss_tensors() const {
  return {.targets = targets(0), .scale = loss_scale(0, 0), .losses = losses(0), .likeliest = targets(0)};
}

void BatchBuffers::fetch_losses(int place, Stream& stream) {
  if (stream.device() == Device::meta || !sizes_.has_head) return;
  host_store({.to = places_[place].losses.as<char>().data(), .from = losses(kept(place))}, stream);
}

void BatchBuffers::fetch_likeliest(int place, Stream& stream) {
  if (stream.device() == Device::meta || !sizes_.has_head) return;
  host_store({.to = places_[place].targets.as<char>().data(), .from = targets(kept(place))}, stream);
}

double BatchBuffers::own_losses(int place) const {
  const Place& at = places_[place];
  const BatchRows& rows = loss_rows(place);
  const auto sum = [&](const auto& losses) {
    double all = 0;
    for (int m = 0; m < rows.micros() && !losses.empty(); ++m) {  // there are none on meta
      const auto begin = losses.begin() + m * rows.room();
      all = std::accumulate(begin, begin + rows.count(m), all);
    }
    return all;
  };
  if (!sizes_.has_head) return 0;
  return sizes_.sums == DType::f64 ? sum(at.losses.as<double>()) : sum(at.losses.as<float>());
}

double BatchBuffers::mean(int place, double total) const {
  const std::int64_t valid = places_[place].valid_targets;
  return valid == 0 ? 0 : total / static_cast<double>(valid);
}

double BatchBuffers::loss_of_stage(int place) const {
  double total = own_losses(place);
  sum_over(ranks_.replicas, total);
  sum_over(ranks_.others, total);
  return total;
}

double BatchBuffers::mean_loss(int place) const {
  double total = loss_of_stage(place);
  sum_over(ranks_.stages, total);  // of which one has it
  return mean(place, total);
}

BatchBuffers::OwnLosses BatchBuffers::losses_apart(int place) const {
  OwnLosses own{.sum = own_losses(place), .targets = places_[place].valid_targets};
  sum_over(ranks_.stages, own.sum);  // of which one has it
  return own;
}

// Losses and marks of this rank's samples, where it has them.
std::array<double, 2> BatchBuffers::own_totals(int place) const {
  std::array<double, 2> totals{own_losses(place)};
  // A target that is ignored keeps its own mark.
  if (sizes_.has_head)
    totals[1] = static_cast<double>(std::ranges::count(places_[place].targets.as<std::int32_t>(), 1));
  return totals;
}

BatchBuffers::Evaluated BatchBuffers::evaluated_apart(int place) const {
  std::array<double, 2> totals = own_totals(place);
  sum_over(ranks_.stages, totals);
  return {
      .loss = totals[0], .likeliest = static_cast<std::int64_t>(totals[1]), .targets = places_[place].valid_targets};
}

BatchBuffers::Evaluated BatchBuffers::evaluated(int place) const {
  std::array<double, 2> totals = own_totals(place);
  sum_over(ranks_.replicas, totals);
  sum_over(ranks_.others, totals);
  sum_over(ranks_.stages, totals);
  return {.loss = mean(place, totals[0]),
          .likeliest = static_cast<std::int64_t>(totals[1]),
          .targets = places_[place].valid_targets};
}

}  // namespace lockstep
