#include "offload/staging.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

using disk::FileMemory;

// Elements at whose multiples windows are cut, for shards are cut there too and words of random numbers begin there;
// on a disk, where blocks begin whatever the type; and bytes to which a slot's tensors are rounded.
constexpr std::int64_t kCut = 256, kCutOnDisk = disk::kBlock / 2;
std::int64_t rounding(bool on_disk) { return on_disk ? disk::kBlock : kAlignment; }

std::int64_t bytes_an_element(const Staging::Pass& pass) {
  std::int64_t bytes = 0;
  for (const Tensor& t : pass) bytes += size_of(t.dtype());
  return bytes;
}

}  // namespace

Staging::Staging(const Options& options, std::vector<Pass> passes, Memory& memory, Stream& compute)
    : on_disk_(options.on_disk), passes_(std::move(passes)), compute_(compute), slots_(kSlots) {
  LOCKSTEP_CHECK(!on_disk_ || compute.device() != Device::cuda, "state on a disk beside a GPU");
  const std::int64_t cut = on_disk_ ? kCutOnDisk : kCut;
  for (int p = 0; p < static_cast<int>(passes_.size()); ++p) {
    const Pass& pass = passes_[static_cast<std::size_t>(p)];
    LOCKSTEP_CHECK(!pass.empty(), "a pass over nothing");
    for (const Tensor& t : pass)
      LOCKSTEP_CHECK(t.dims() == 1 && t.contiguous() && t.elements() == pass[0].elements() &&
                         (t.device() == Device::disk) == (on_disk_ && compute.device() != Device::meta),
                     "a pass over tensors {} and {} on {}", pass[0].shape(), t.shape(), name_of(t.device()));
    first_.push_back(std::ssize(order_));
    const std::int64_t each = std::max(cut, options.window_bytes / bytes_an_element(pass) / cut * cut);
    for (std::int64_t begin = 0; begin < pass[0].elements(); begin += each) {
      const std::int64_t count = std::min(each, pass[0].elements() - begin);
      order_.push_back({.pass = p, .begin = begin, .count = count, .stored = compute.make_event()});
      std::int64_t bytes = 0;
      for (const Tensor& t : pass) bytes += round_up(count * size_of(t.dtype()), rounding(on_disk_));
      slot_bytes_ = std::max(slot_bytes_, bytes);
    }
    passed_.push_back(compute.make_event());
  }
  first_.push_back(std::ssize(order_));
  buffer_ = memory.allocate(slot_bytes_ * kSlots + (on_disk_ ? disk::kBlock : 0), Tag::workspace, "offload");
  if (on_disk_ && buffer_.data()) {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer_.data());
    aligned_ = round_up(static_cast<std::int64_t>(address), disk::kBlock) - static_cast<std::int64_t>(address);
  }
  if (compute.device() == Device::cuda)
    for (std::optional<SideStream>* side : {&up_, &work_, &down_}) side->emplace(Device::cuda);
  for (Slot& slot : slots_)
    for (std::unique_ptr<Event>* event : {&slot.there, &slot.done, &slot.free}) *event = compute.make_event();
  reached_ = compute.make_event();
}

// The slots are still read and written until then, also those whose neighbours have failed.
Staging::~Staging() {
  for (Slot& slot : slots_)
    while (!slot.moving.empty()) {
      try {
        finish(slot);
      } catch (...) {
      }
    }
}

std::vector<Tensor> Staging::parts_of(std::int64_t number) const {
  const Place& at = order_[static_cast<std::size_t>(number) % order_.size()];
  std::int64_t offset = aligned_ + number % kSlots * slot_bytes_;
  std::vector<Tensor> parts;
  for (const Tensor& t : passes_[static_cast<std::size_t>(at.pass)]) {
    parts.push_back(view(buffer_, t.dtype(), {at.count}, offset / size_of(t.dtype())));
    offset += round_up(at.count * size_of(t.dtype()), rounding(on_disk_));
  }
  return parts;
}

// Waits for what the disk does with it.
void Staging::finish(Slot& slot) {
  while (!slot.moving.empty()) {
    const FileMemory::Moving moving = slot.moving.back();
    slot.moving.pop_back();
    FileMemory::of(offloaded(order_[0], 0).raw()).finish(moving);
  }
  slot.written = -1;
}

void Staging::bring(std::int64_t number) {
  Place& at = place(number);
  Slot& into = slot(number);
  const std::vector<Tensor> parts = parts_of(number);
  const bool from_disk = on_disk_ && compute_.device() != Device::meta;
  if (from_disk) {
    finish(into);
    const std::int64_t before = number - std::ssize(order_);  // the same window a round ago
    if (before >= 0 && slot(before).written == before) finish(slot(before));
  }
  up().wait(*into.free);
  up().wait(*at.stored);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor there = offloaded(at, i);
    if (from_disk)
      into.moving.push_back(FileMemory::of(there.raw()).start_read(parts[i].raw(), there.raw(), there.bytes()));
    else
      upload_later(parts[i], there.raw(), up());
    traffic_.to_device += parts[i].bytes();
  }
  up().record(*into.there);
}

void Staging::take_back(std::int64_t number) {
  Place& at = place(number);
  Slot& from = slot(number);
  work().record(*from.done);
  down().wait(*from.done);
  const std::vector<Tensor> parts = parts_of(number);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor there = offloaded(at, i);
    traffic_.from_device += parts[i].bytes();
    if (compute_.device() == Device::meta) continue;
    if (on_disk_)
      from.moving.push_back(FileMemory::of(there.raw()).start_write(there.raw(), parts[i].raw(), there.bytes()));
    else
      download_later(there.raw(), parts[i], down());
  }
  from.written = number;
  down().record(*from.free);
  down().record(*at.stored);
}

void Staging::run(int pass, const Work& work_on) {
  const auto p = static_cast<std::size_t>(pass);
  const std::int64_t all = std::ssize(order_);
  LOCKSTEP_CHECK(first_[p] == first_[p + 1] || worked_ % all == first_[p], "pass {} comes after window {} of {}", pass,
                 worked_ % all, all);
  compute_.record(*reached_);
  work().wait(*reached_);
  for (std::int64_t i = first_[p]; i < first_[p + 1]; ++i) {
    // A slot is for the window that is taken back; and no window is brought before it was taken back the last time.
    const std::int64_t ahead = std::min<std::int64_t>(kSlots - 1, all);
    while (brought_ < worked_ + ahead) bring(brought_++);
    const std::int64_t number = worked_++;
    if (on_disk_) finish(slot(number));
    work().wait(*slot(number).there);
    const std::vector<Tensor> parts = parts_of(number);
    const Place& at = place(number);
    work_on({.begin = at.begin, .count = at.count, .parts = parts, .stream = work()});
    take_back(number);
  }
  work().record(*passed_[p]);
}

void Staging::visit(const Tensor& offloaded, Access access, const Work& work_on) {
  settle();
  forget();
  const std::int64_t cut = on_disk_ ? kCutOnDisk : kCut;
  const std::int64_t each = std::max(cut, slot_bytes_ * kSlots / size_of(offloaded.dtype()) / cut * cut);
  for (std::int64_t begin = 0; begin < offloaded.elements(); begin += each) {
    const std::int64_t count = std::min(each, offloaded.elements() - begin);
    const std::vector<Tensor> part = {view(buffer_, offloaded.dtype(), {count}, aligned_ / size_of(offloaded.dtype()))};
    const Tensor there = offloaded.slice(0, begin, count);
    const bool meta = compute_.device() == Device::meta;
    if (access != Access::write && !meta) {
      if (on_disk_)
        download(part[0].raw(), there, compute_);
      else
        upload_later(part[0], there.raw(), compute_);
    }
    work_on({.begin = begin, .count = count, .parts = part, .stream = compute_});
    if (access != Access::read && !meta) {
      if (on_disk_)
        upload(there, part[0].raw(), compute_);
      else
        download_later(there.raw(), part[0], compute_);
    }
    compute_.synchronize();
  }
}

void Staging::wait_for(int pass) { compute_.wait(*passed_[static_cast<std::size_t>(pass)]); }

void Staging::settle() {
  for (Stream* stream : {&up(), &work(), &down()}) stream->synchronize();
  for (Slot& slot : slots_) finish(slot);
}

void Staging::forget() { brought_ = worked_; }

}  // namespace lockstep
