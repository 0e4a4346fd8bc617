// Activations that are kept from a forward to a backward, copied to the host's memory or to a disk in between, so that
// their bytes on the device are free meanwhile.
//
//   ActivationOffload offload({.bytes = n}, moves, host_memory, compute);
//   for (std::size_t i = 0; i < actions.size(); ++i) offload.reach(i), run(actions[i]);
//
// The order of a step is known before it runs, and so is every move: from which place of the device to which place
// elsewhere or back, the action before which it may begin, and the one before which it must be done. reach() is told
// where the compute stream is. What is to be done by then, it makes the compute stream wait for; what may begin then
// waits for the compute stream. So a place is not used again before the copy from it, and not written to before the
// work that used it last: the places' owner counts on that (model/slots.h).
//
// On a GPU each direction has a stream of its own, beside the compute stream; nothing here makes the host wait. Between
// a GPU and a disk bytes pass through room on the host, a part of a move at a time, in the order of these streams
// (disk_copies.h): one room per direction, since what a stream gives to it comes after what it took from it. On the cpu
// copies to and from the host's memory are made where they begin; a disk reads and writes beside what is computed. On
// meta bytes are counted.
//
// Memory and stream outlive it, and so do the places. One thread uses it. Failure: EnvironmentError of a disk
// (tensor/disk/file_memory.h), on a GPU from a later begin() or reach().
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "offload/disk_copies.h"
#include "tensor/disk/file_memory.h"
#include "tensor/memory.h"
#include "tensor/side_stream.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class ActivationOffload {
 public:
  struct Move {
    bool out;                // from the device; else back to it
    std::size_t begin, end;  // moments, the first before the second
    Tensor here;             // flat, on the device; of a disk, at a multiple of its blocks and with room for whole ones
    std::int64_t there;      // the byte where it begins elsewhere; of a disk, at a block
  };
  struct Options {
    std::int64_t bytes;    // elsewhere
    bool on_disk = false;  // which meta's memory does not know
    // Of a disk: where on the host there is room for what is on its way, if the device's memory is not the host's.
    Memory* rooms = nullptr;
    std::int64_t room_bytes = 32 << 20;  // of one at most; whole blocks
  };
  // The streams of the two directions, and what copies in them: a test's, which come late.
  struct Lanes {
    Stream& up;
    Stream& down;
    DiskCopies::Means means;
  };
  // Bytes since the beginning, to the device and from it.
  struct Traffic {
    std::int64_t to_device = 0, from_device = 0;
    bool operator==(const Traffic&) const = default;
  };

  ActivationOffload(const Options& options, const std::vector<Move>& moves, Memory& elsewhere, Stream& compute,
                    const Lanes* lanes = nullptr);
  ~ActivationOffload();

  // A step begins, from moment 0 on. Where the last one was left in the middle, what it had begun is waited for.
  void begin();
  // All that comes before this moment has been given to the compute stream. Moments ascend; one that is left out is
  // reached together with the next.
  void reach(std::size_t moment);

  const Traffic& traffic() const { return traffic_; }

 private:
  // Moves of one direction that begin and end together.
  struct Batch {
    bool out;
    std::size_t begin, end;
    std::vector<Move> moves;
    std::unique_ptr<Event> done;
    std::vector<disk::FileMemory::Moving> moving;
  };
  void start(Batch& batch);
  void finish(Batch& batch);
  void start_copy(Batch& batch, const Move& move);
  void copy_through_room(const Move& move);
  Stream& lane(bool out);

  const Options options_;
  Stream& compute_;
  const Lanes* lanes_;
  std::optional<SideStream> up_, down_;  // of a GPU; elsewhere the compute stream is both
  Buffer buffer_;
  Buffer rooms_;                                   // on the host: for what comes up, and for what goes down
  std::int64_t room_bytes_ = 0, rooms_begin_ = 0;  // of each; where the first is
  DiskCopies disk_;
  std::vector<Batch> batches_;                         // by when they begin
  std::vector<std::size_t> by_end_;                    // the same, by when they end
  std::size_t started_ = 0, finished_ = 0, next_ = 0;  // of the two lists; the next moment
  std::unique_ptr<Event> reached_;                     // the compute stream is where a batch begins
  Traffic traffic_;
};

}  // namespace lockstep
