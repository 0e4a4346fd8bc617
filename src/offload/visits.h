// Offloaded tensors that are changed whole, one after the other in an order that is known: gradients, which micro-batch
// after micro-batch adds to.
//
//   Tensor here = visits.enter(unit);   // where it is on the device, from where the compute stream is now
//   ...                                 // it is changed in the compute stream
//   visits.leave(unit);                 // and taken back
//
// The order is walked through again and again, a round per step. While one tensor is changed, the next one comes and
// the one before goes back; the device has room for the four that live at a time, by their sizes. A visit that writes
// all of its tensor brings nothing. Between rounds nothing is brought, and outside of visits the tensors may be read by
// somebody else after wait_until_back() or settle().
//
// On a GPU there is a stream for each direction. On the cpu copies from and to the host's memory are made where they
// stand, and a disk's reads and writes run beside. On meta the bytes are counted. Memory and stream outlive it; the
// offloaded tensors are somebody else's. One thread uses it. Failure: EnvironmentError of a disk
// (tensor/disk/file_memory.h).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/disk_copies.h"
#include "offload/staging.h"
#include "tensor/disk/file_memory.h"
#include "tensor/memory.h"
#include "tensor/side_stream.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class Visits {
 public:
  struct Visit {
    int tensor;
    bool brings = true;  // false: all of it is written anew
  };
  struct Options {
    std::vector<Tensor> tensors;  // flat, by number; none of numbers that the order does not have
    std::vector<Visit> order;
    bool on_disk = false;
    Memory* rooms = nullptr;   // of a disk: room on the host, if the device's memory is not the host's (disk_copies.h)
    Tag tag = Tag::workspace;  // of the room on the device
    std::string name = {};
  };
  Visits(Options options, Memory& memory, Stream& compute);
  ~Visits();  // what is not back yet is lost where settle() was not called before

  // The next visit of the order, which is of this tensor. The third after it begins when it was left.
  Tensor enter(int tensor);
  // What the compute stream has been given so far is all that changes it.
  void leave(int tensor);
  // What the stream is given from now on comes after all that was left is back.
  void wait_until_back(Stream& stream);
  // Returns when it is.
  void settle();

  const Staging::Traffic& traffic() const { return traffic_; }

 private:
  static constexpr std::int64_t kLive = 4;  // visits that have a place at a time: two after it, and one before
  struct Slot {
    std::unique_ptr<Event> there, back;  // it was brought, and taken back
    std::optional<disk::FileMemory::Moving> moving;
    int tensor = -1;  // that is here, or was here last
    bool brought = false, left = true;
  };
  Tensor place(std::int64_t number) const { return place_in(buffer_, aligned_, number); }
  Tensor room(std::int64_t number) const { return place_in(rooms_, rooms_begin_, number); }
  Tensor place_in(const Buffer& buffer, std::int64_t begin, std::int64_t number) const;
  const Visit& visit(std::int64_t number) const {
    return options_.order[static_cast<std::size_t>(number) % options_.order.size()];
  }
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number % kLive)]; }
  const Tensor& tensor_of(std::int64_t number) const {
    return options_.tensors[static_cast<std::size_t>(visit(number).tensor)];
  }
  bool is_on_disk() const { return options_.on_disk && compute_.device() != Device::meta; }
  bool through_rooms() const { return rooms_.memory() && compute_.device() != Device::meta; }
  void bring(std::int64_t number);
  void finish(Slot& slot);
  Stream& up() { return up_ ? up_->stream() : compute_; }
  Stream& down() { return down_ ? down_->stream() : compute_; }

  Options options_;
  Stream& compute_;
  std::optional<SideStream> up_, down_;
  std::vector<std::int64_t> offsets_;  // bytes, by visit of the order
  Buffer buffer_;
  std::int64_t aligned_ = 0;
  Buffer rooms_;
  std::int64_t rooms_begin_ = 0;
  DiskCopies disk_;
  std::vector<Slot> slots_;
  std::unique_ptr<Event> reached_;
  std::int64_t entered_ = 0;  // visits since the beginning, round after round
  Staging::Traffic traffic_;
};

}  // namespace lockstep
