// The steps of a replica, from a batch to what became of it: whole, in two calls, in two halves, and forward alone.
#include <algorithm>
#include <vector>

#include "tensor/transfer.h"
#include "train/host_values.h"
#include "train/replica.h"

namespace lockstep {

Share Replica::given() const {
  if (!central()) return own();
  return {0, dp_rank() == 0 ? options_.B : 0};
}

// Where rank 0 has the whole batch, every rank gets its tokens from it; the targets stay.
void Replica::set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place) {
  if (central()) {
    const bool counts_alone = stream_.device() == Device::meta;
    LOCKSTEP_CHECK(counts_alone || std::ssize(tokens) == given().count * options_.T, "{} tokens for {} samples",
                   tokens.size(), given().count);
    const Device device = ranks_.hosts.device();
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks_.hosts.size(); ++r)
      counts.push_back(share_of(options_.B, options_.layout, r).count * options_.T);
    const std::int64_t given_tokens = given().count * options_.T;
    const ConstTensor all =
        given_tokens == 0 ? ConstTensor{} : ConstTensor(tokens.data(), DType::i32, device, {given_tokens});
    ranks_.hosts.scatter(Tensor(dealt_.data(), DType::i32, device, {own().count * options_.T}), all, 0, counts)->wait();
    tokens = dealt_;
  }
  batch_.set(tokens, targets, place, stream_);
}

double Replica::compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  LOCKSTEP_CHECK(steps_in_flight() == 0, "{} steps are in flight", steps_in_flight());
  set_batch(tokens, targets, 0);
  weights_->begin(true);
  for (std::size_t i = 0; i < norm_at_; ++i) run(actions()[i], true, batches_done_);
  links_.settle();
  gradients_->wait();
  batch_.fetch_losses(0, stream_);
  stream_.synchronize();
  mesh_.check();
  last_loss_ = batch_.mean_loss(0);
  return last_loss_;
}

Replica::Result Replica::apply_gradients() {
  upload(control().slice(0, kLearningRate, 1), &options_.optimizer.learning_rate, stream_);
  for (std::size_t i = norm_at_; i < actions().size(); ++i) run(actions()[i], true, batches_done_);
  double host[kStepControls] = {};
  download(host, control(), stream_);
  mesh_.check();
  const bool updated = host[kFinite] != 0;
  if (updated) ++steps_done_;
  ++batches_done_;
  return {last_loss_, host[kNorm], updated};
}

void Replica::show(StepWatch* watch) {
  LOCKSTEP_CHECK(steps_in_flight() == 0, "{} steps are in flight", steps_in_flight());
  watch_ = watch;
}

void Replica::count_by(PhaseCounter* counter) {
  LOCKSTEP_CHECK(stream_.device() == Device::meta, "phases on {} are run, not counted", name_of(stream_.device()));
  counter_ = counter;
}

// The first time action by action, as libraries and code are loaded then; the second time captured, where that is of
// use; from then on as a whole, unless somebody watches.
void Replica::run_step(std::int64_t batch_number) {
  const auto all = [&] {
    weights_->begin(true);
    for (std::size_t i = 0; i < actions().size(); ++i) {
      const Action& action = actions()[i];
      if (watch_) watch_->comes_to(i);
      if (stream_.runs_ahead()) stream_.begin_range(to_string(action).c_str());
      if (watch_ && !is_phase(action.kind)) watch_->runs(action);
      run(action, true, batch_number);
      if (stream_.runs_ahead()) stream_.end_range();
      if (watch_ && stream_.runs_ahead()) stream_.synchronize();
      if (watch_) watch_->is_done_with(action);
    }
  };
  if (watch_) return all();
  if (!replay_ && repeats_ && begun_ > 0) replay_ = stream_.capture(all);
  if (replay_)
    replay_->run();
  else
    all();
}

void Replica::begin_step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  LOCKSTEP_CHECK(steps_in_flight() < kStepsInFlight, "{} steps are in flight", steps_in_flight());
  const int place = static_cast<int>(begun_ % kStepsInFlight);
  InFlight& flight = flights_[place];
  set_batch(tokens, targets, place);
  flight.rate.as<double>()[0] = options_.optimizer.learning_rate;
  upload_later(control().slice(0, kLearningRate, 1), flight.rate.as<char>().data(), stream_);
  run_step(batches_done_ + steps_in_flight());
  batch_.fetch_losses(place, stream_);
  download_later(flight.controls.as<char>().data(), control(), stream_);
  stream_.record(*flight.done);
  ++begun_;
}

Replica::Result Replica::finish_step() {
  LOCKSTEP_CHECK(steps_in_flight() > 0, "no step is in flight");
  const int place = static_cast<int>(finished_ % kStepsInFlight);
  InFlight& flight = flights_[place];
  flight.done->wait();
  mesh_.check();  // else what has come may be of ranks that never summed
  ++finished_;
  const std::span<double> controls = flight.controls.as<double>();
  const bool updated = controls[kFinite] != 0;
  if (updated) ++steps_done_;
  ++batches_done_;
  return {batch_.mean_loss(place), controls[kNorm], updated};
}

Replica::Result Replica::step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  begin_step(tokens, targets);
  return finish_step();
}

double Replica::evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                         std::span<double> logits) {
  LOCKSTEP_CHECK(steps_in_flight() == 0, "{} steps are in flight", steps_in_flight());
  set_batch(tokens, targets, 0);
  const std::int64_t V = options_.spec.vocabulary, rows = own().count / micros() * model_.T();
  LOCKSTEP_CHECK(logits.empty() || std::ssize(logits) == own().count * options_.T * V, "room for {} logits of {}",
                 logits.size(), own().count * options_.T * V);
  const DType sums = accumulator_of(model_.dtype());
  Buffer whole;
  const Part columns = model_.head().vocabulary();
  if (!logits.empty()) whole = memory_.allocate(rows * columns.each * size_of(sums), Tag::workspace);
  weights_->begin(false);
  for (const Action& action : step_.evaluation) {
    run(action, false, batches_done_);
    if (logits.empty() || action.kind != ActionKind::forward || action.unit != model_.units() - 1) continue;
    const Tensor out = view(whole, sums, {rows, columns.each});
    model_.head().logits(out, 0, call(action, batch_.micro_batch(action.micro, 0, false)));
    const std::vector<double> values = to_doubles(out, stream_);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(values.begin() + row * columns.each, columns.count,
                  logits.begin() + batch_.place_of(action.micro * rows + row) * V + columns.first);
  }
  links_.settle();
  // Every rank of a layer has some columns, every rank of a sample some rows, and the last stage has them all.
  for (Communicator* others : {&mesh_hosts_.tensor(), &mesh_hosts_.context(), &mesh_hosts_.pipeline()})
    if (!logits.empty() && others->size() > 1) sum_over(*others, logits);
  batch_.fetch_losses(0, stream_);
  stream_.synchronize();
  mesh_.check();
  return batch_.mean_loss(0);
}

}  // namespace lockstep
