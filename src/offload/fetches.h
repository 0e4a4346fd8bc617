// Offloaded tensors that are brought whole, each to a place on the device that the caller names, beside what is
// computed: the weights of a unit, for the phases that read them.
//
//   fetches.start(unit, place, offloaded);   // ahead of time
//   fetches.finish(unit);                    // before the first work that reads the place
//
// On a GPU a stream of its own copies; the compute stream is not held until finish(). From a disk reads run beside the
// calling thread where the place begins and ends at blocks (disk::kBlock); otherwise the bytes are there when start()
// returns, as they are on the cpu. On meta the bytes are counted.
//
// The compute stream outlives it; places stay as they are until finish(). One thread uses it. Failure: EnvironmentError
// of a disk (tensor/disk/file_memory.h).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "offload/disk_copies.h"
#include "tensor/disk/file_memory.h"
#include "tensor/side_stream.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class Fetches {
 public:
  Fetches(int tensors, Stream& compute);
  ~Fetches();

  // The stream that copies: what it waits for now comes before the next start().
  Stream& up() { return up_ ? up_->stream() : compute_; }
  // `index`, of `tensors`: one of each is under way at most. The place is free where the compute stream is now. `room`
  // on the host is for tensors on a disk where the device's memory is not the host's (disk_copies.h).
  void start(int index, const Tensor& place, const Tensor& offloaded, const Tensor& room = {});
  // What the compute stream is given from now on comes after its arrival. Nothing where none is under way.
  void finish(int index);

  std::int64_t bytes() const { return bytes_; }  // brought since the beginning

 private:
  struct UnderWay {
    std::unique_ptr<Event> there;
    std::optional<disk::FileMemory::Moving> moving;
    disk::FileMemory* file = nullptr;
    bool pending = false;
  };

  Stream& compute_;
  std::optional<SideStream> up_;  // of a GPU
  std::unique_ptr<Event> reached_;
  DiskCopies disk_;
  std::vector<UnderWay> all_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep
