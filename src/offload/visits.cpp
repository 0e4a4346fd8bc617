#include "offload/visits.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "spec/step/lifetimes.h"
#include "tensor/transfer.h"

namespace lockstep {

using disk::FileMemory;

Visits::Visits(Options options, Memory& memory, Stream& compute)
    : options_(std::move(options)), compute_(compute), slots_(kLive), reached_(compute.make_event()) {
  const std::int64_t alignment = options_.on_disk ? disk::kBlock : kAlignment;
  Lifetimes lives(alignment);
  for (std::int64_t k = 0; k < std::ssize(options_.order); ++k) {
    const Tensor& t = tensor_of(k);
    LOCKSTEP_CHECK(t.dims() == 1 && t.contiguous() && (t.device() == Device::disk) == is_on_disk(),
                   "a visit to a tensor {} on {}", t.shape(), name_of(t.device()));
    lives.add(t.bytes(), k, k + kLive - 1);  // moments are counted from one before the first
  }
  const std::int64_t bytes = lives.plan();
  for (std::int64_t k = 0; k < std::ssize(options_.order); ++k) offsets_.push_back(lives.offset(static_cast<int>(k)));
  buffer_ =
      memory.allocate(round_up(bytes, alignment) + (options_.on_disk ? disk::kBlock : 0), options_.tag, options_.name);
  if (options_.on_disk && options_.rooms)
    rooms_ = options_.rooms->allocate(round_up(bytes, alignment) + disk::kBlock, Tag::workspace, options_.name);
  if (options_.on_disk) aligned_ = disk::bytes_to_block(buffer_), rooms_begin_ = disk::bytes_to_block(rooms_);
  if (compute.device() == Device::cuda)
    for (std::optional<SideStream>* side : {&up_, &down_}) side->emplace(Device::cuda);
  for (Slot& slot : slots_)
    for (std::unique_ptr<Event>* event : {&slot.there, &slot.back}) *event = compute.make_event();
}

// Places are still read and written until then.
Visits::~Visits() {
  for (Slot& slot : slots_) {
    try {
      finish(slot);
    } catch (...) {
    }
  }
}

Tensor Visits::place_in(const Buffer& buffer, std::int64_t begin, std::int64_t number) const {
  const Tensor& t = tensor_of(number);
  const std::int64_t at = offsets_[static_cast<std::size_t>(number) % offsets_.size()] + begin;
  return view(buffer, t.dtype(), {t.elements()}, at / size_of(t.dtype()));
}

// Waits for what the disk does with it.
void Visits::finish(Slot& slot) {
  if (!slot.moving) return;
  const FileMemory::Moving moving = *std::exchange(slot.moving, std::nullopt);
  FileMemory::of(options_.tensors[static_cast<std::size_t>(slot.tensor)].raw()).finish(moving);
}

// Its place was another's, of the fourth visit before or of the last round; and the tensor itself may still be on its
// way back from an earlier visit.
void Visits::bring(std::int64_t number) {
  Slot& into = slot(number);
  LOCKSTEP_CHECK(into.left, "visit {} begins while tensor {} is in its place", number, into.tensor);
  finish(into);
  const Tensor& there = tensor_of(number);
  for (Slot& other : slots_) {
    up().wait(*other.back);
    if (other.left && other.tensor == visit(number).tensor) finish(other);
  }
  into.tensor = visit(number).tensor;
  into.left = false;
  into.brought = true;
  if (visit(number).brings) {
    traffic_.to_device += there.bytes();
    if (through_rooms())
      disk_.bring(place(number), room(number), there, up());
    else if (is_on_disk())
      into.moving = FileMemory::of(there.raw()).start_read(place(number).raw(), there.raw(), there.bytes());
    else if (compute_.device() != Device::meta)
      upload_later(place(number), there.raw(), up());
  }
  up().record(*into.there);
}

Tensor Visits::enter(int tensor) {
  disk_.rethrow();
  const std::int64_t number = entered_++, all = std::ssize(options_.order);
  LOCKSTEP_CHECK(visit(number).tensor == tensor, "tensor {} is visited, and {} is next", tensor, visit(number).tensor);
  if (number % all == 0) {
    wait_until_back(up());
    for (Slot& slot : slots_) finish(slot);
  }
  Slot& here = slot(number);
  if (!here.brought) bring(number);
  here.brought = false;
  // The next one comes meanwhile, unless it is here.
  const int next = visit(number + 1).tensor;
  const bool inside = std::ranges::any_of(slots_, [&](const Slot& s) { return !s.left && s.tensor == next; });
  if ((number + 1) % all != 0 && !inside) bring(number + 1);
  finish(here);
  compute_.wait(*here.there);
  return place(number);
}

void Visits::leave(int tensor) {
  for (std::int64_t number = entered_ - 1; number >= 0 && number > entered_ - kLive; --number) {
    Slot& from = slot(number);
    if (from.left || from.brought || visit(number).tensor != tensor) continue;
    const Tensor& there = tensor_of(number);
    traffic_.from_device += there.bytes();
    compute_.record(*reached_);
    down().wait(*reached_);
    if (through_rooms())
      disk_.take_back(there, room(number), place(number), down());
    else if (is_on_disk())
      from.moving = FileMemory::of(there.raw()).start_write(there.raw(), place(number).raw(), there.bytes());
    else if (compute_.device() != Device::meta)
      download_later(there.raw(), place(number), down());
    down().record(*from.back);
    from.left = true;
    return;
  }
  LOCKSTEP_CHECK(false, "tensor {} is left and was not entered", tensor);
}

void Visits::wait_until_back(Stream& stream) {
  for (Slot& slot : slots_) {
    if (slot.left) finish(slot);
    stream.wait(*slot.back);
  }
}

void Visits::settle() {
  wait_until_back(down());
  down().synchronize();
  disk_.rethrow();
}

}  // namespace lockstep
