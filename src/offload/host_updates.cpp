#include "offload/host_updates.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/host_call.h"

namespace lockstep {

namespace {

// Elements at whose multiples windows are cut, for shards are cut there too and words of random numbers begin there.
constexpr std::int64_t kCutOfUpdates = 256;
constexpr std::int64_t kVisitBytes = 4 << 20;  // of a window on the device, which only starts and resumes need

std::int64_t elements_a_window(const HostUpdates::Pass& pass, std::int64_t window_bytes) {
  const std::int64_t each = size_of(pass.gradient) + size_of(pass.weight);
  return std::max(kCutOfUpdates, window_bytes / each / kCutOfUpdates * kCutOfUpdates);
}

std::int64_t gradient_bytes(const HostUpdates::Pass& pass, std::int64_t count) {
  return round_up(count * size_of(pass.gradient), kAlignment);
}

}  // namespace

HostUpdates::HostUpdates(const Options& options, std::vector<Pass> passes, Memory& host, Memory& memory,
                         Stream& compute)
    : options_(options),
      passes_(std::move(passes)),
      compute_(compute),
      nowhere_(make_memory(Device::meta, nothing_)),
      held_(options.controls * 8, compute),
      slots_(kSlots) {
  bool visits = false;
  for (const Pass& pass : passes_) {
    const std::int64_t count = std::min(pass.elements, elements_a_window(pass, options.window_bytes));
    slot_bytes_ =
        std::max(slot_bytes_, gradient_bytes(pass, count) + round_up(count * size_of(pass.weight), kAlignment));
    visits = visits || !pass.weight_comes;
    passed_.push_back(compute.make_event());
  }
  buffer_ = host.allocate(slot_bytes_ * kSlots, Tag::workspace, "offload");
  if (visits) visited_ = memory.allocate(kVisitBytes, Tag::workspace, "offload");
  if (!on_meta()) threads_.emplace(*nowhere_, options.threads);
  if (compute.device() == Device::cuda)
    for (std::optional<SideStream>* side : {&down_, &calls_, &up_}) side->emplace(Device::cuda);
  for (Slot& slot : slots_)
    for (std::unique_ptr<Event>* event : {&slot.there, &slot.done, &slot.free}) *event = compute.make_event();
  reached_ = compute.make_event();
  called_ = compute.make_event();
}

// The slots are still read and written until then.
HostUpdates::~HostUpdates() {
  for (Stream* stream : {&down(), &calls(), &up()}) {
    try {
      stream->synchronize();
    } catch (...) {
    }
  }
}

// The compute stream waits for the calls that still read the last ones.
void HostUpdates::hold(ConstTensor control) {
  LOCKSTEP_CHECK(control.elements() == options_.controls, "{} scalars of {}", control.elements(), options_.controls);
  compute_.wait(*called_);
  if (!on_meta()) download_later(held_.as<char>().data(), control, compute_);
}

void HostUpdates::call(const Work& work, const Window& window) {
  try {
    work(window);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void HostUpdates::rethrow() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void HostUpdates::run(int p, const ConstTensor& gradient, const Tensor& weight, const Work& work) {
  rethrow();
  const Pass& pass = passes_[static_cast<std::size_t>(p)];
  LOCKSTEP_CHECK(gradient.elements() == pass.elements && gradient.dtype() == pass.gradient &&
                     weight.elements() == pass.elements && weight.dtype() == pass.weight,
                 "pass {} over {} and {}", p, gradient.shape(), weight.shape());
  const Device host = on_meta() ? Device::meta : Device::cpu;
  const ConstTensor control(on_meta() ? nullptr : held_.as<char>().data(), DType::f64, host, {options_.controls});
  compute_.record(*reached_);
  down().wait(*reached_);
  const std::int64_t each = elements_a_window(pass, options_.window_bytes);
  for (std::int64_t begin = 0; begin < pass.elements; begin += each) {
    const std::int64_t count = std::min(each, pass.elements - begin), at = number_ % kSlots * slot_bytes_;
    Slot& slot = slots_[static_cast<std::size_t>(number_++ % kSlots)];
    const Tensor come = view(buffer_, pass.gradient, {count}, at / size_of(pass.gradient));
    const Tensor goes = view(buffer_, pass.weight, {count}, (at + gradient_bytes(pass, count)) / size_of(pass.weight));
    const Tensor there = weight.slice(0, begin, count);
    down().wait(*slot.free);
    const auto bring = [&](const Tensor& to, const ConstTensor& from) {
      if (!on_meta()) download_later(to.raw(), from, down());
      traffic_.from_device += to.bytes();
    };
    bring(come, gradient.slice(0, begin, count));
    if (pass.weight_comes) bring(goes, there);
    down().record(*slot.there);

    calls().wait(*slot.there);
    const Window window{.begin = begin,
                        .count = count,
                        .gradient = come,
                        .weight = goes,
                        .control = control,
                        .stream = threads_ ? *threads_ : compute_};
    call_later([this, work, window] { call(work, window); }, calls());
    calls().record(*slot.done);

    up().wait(*slot.done);
    if (!on_meta()) upload_later(there, goes.raw(), up());
    traffic_.to_device += goes.bytes();
    up().record(*slot.free);
  }
  calls().record(*called_);
  up().record(*passed_[static_cast<std::size_t>(p)]);
}

void HostUpdates::wait_for(int pass) { compute_.wait(*passed_[static_cast<std::size_t>(pass)]); }

void HostUpdates::settle() {
  for (Stream* stream : {&down(), &calls(), &up()}) stream->synchronize();
  rethrow();
}

void HostUpdates::visit(const Tensor& offloaded, Staging::Access access, const Staging::Work& work) {
  settle();
  const std::int64_t each = kVisitBytes / size_of(offloaded.dtype());
  for (std::int64_t begin = 0; begin < offloaded.elements(); begin += each) {
    const std::int64_t count = std::min(each, offloaded.elements() - begin);
    const std::vector<Tensor> part = {view(visited_, offloaded.dtype(), {count})};
    const Tensor there = offloaded.slice(0, begin, count);
    if (access != Staging::Access::write && !on_meta()) upload_later(part[0], there.raw(), compute_);
    work({.begin = begin, .count = count, .parts = part, .stream = compute_});
    if (access != Staging::Access::read && !on_meta()) download_later(there.raw(), part[0], compute_);
    compute_.synchronize();
  }
}

}  // namespace lockstep
