#include "offload/fetches.h"

#include "base/error.h"
#include "tensor/transfer.h"

namespace lockstep {

Fetches::Fetches(int tensors, Stream& compute)
    : compute_(compute), reached_(compute.make_event()), all_(static_cast<std::size_t>(tensors)) {
  if (compute.device() == Device::cuda) up_.emplace(Device::cuda);
  for (UnderWay& one : all_) one.there = compute.make_event();
}

// Places are written until then.
Fetches::~Fetches() {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    try {
      finish(static_cast<int>(i));
    } catch (...) {
    }
  }
}

void Fetches::start(int index, const Tensor& place, const Tensor& offloaded, const Tensor& room) {
  disk_.rethrow();
  UnderWay& one = all_[static_cast<std::size_t>(index)];
  LOCKSTEP_CHECK(!one.pending && place.bytes() == offloaded.bytes(), "{} bytes are brought into {}", offloaded.bytes(),
                 place.bytes());
  bytes_ += place.bytes();
  one.pending = true;
  if (compute_.device() == Device::meta) return;
  if (offloaded.device() == Device::disk && !room) {
    const bool at_block = reinterpret_cast<std::uintptr_t>(place.raw()) % disk::kBlock == 0;
    if (!at_block) return download(place.raw(), offloaded, compute_);
    one.file = &disk::FileMemory::of(offloaded.raw());
    one.moving = one.file->start_read(place.raw(), offloaded.raw(), offloaded.bytes());
    return;
  }
  compute_.record(*reached_);
  up().wait(*reached_);
  if (room)
    disk_.bring(place, room, offloaded, up());
  else
    upload_later(place, offloaded.raw(), up());
  up().record(*one.there);
}

void Fetches::finish(int index) {
  UnderWay& one = all_[static_cast<std::size_t>(index)];
  if (!one.pending) return;
  one.pending = false;
  if (one.moving) {
    const disk::FileMemory::Moving moving = *one.moving;
    one.moving.reset();
    one.file->finish(moving);
  }
  if (up_) compute_.wait(*one.there);
}

}  // namespace lockstep
