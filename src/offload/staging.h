// Offloaded state, which is in the host's memory or on a disk while it is not used: brought to the device a window at a
// time, worked on there, and taken back.
//
//   Staging staging({.window_bytes = 64 << 20}, {{m, v}, {m2, v2}}, memory, stream);
//   staging.run(0, [&](const Staging::Window& w) { adamw on w.parts, elements w.begin to w.begin + w.count });
//
// A pass goes over flat tensors of one length, those of a unit's optimizer state, window by window; tensors that are
// read alone are not taken back, and those that are written alone are not brought. Windows of all passes follow each
// other in one order, again and again, so the next ones are on their way while one is worked on, and so are those of
// the next pass and of the next round: offloaded state changes in passes alone. The device holds kSlots windows.
// Elements are worked on one by one, so where the windows end changes no result.
//
// On a GPU there is a stream for each direction and one for the work, so nothing here makes the compute stream wait:
// work begins when the compute stream has reached the call of run(), and the compute stream waits for a pass where
// wait_for() says so. On the cpu all work is done when run() returns; copies from and to the host's memory are made
// where they stand, and reads and writes of a disk run beside it. On meta the windows' bytes are counted, and no memory
// is touched. State on a disk goes through room on the host where the device is a GPU.
//
// Memory and stream outlive it; the offloaded tensors are somebody else's, at the same addresses as long as it lives.
// One thread uses it. Failure: EnvironmentError of a disk (tensor/disk/file_memory.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/disk_copies.h"
#include "tensor/disk/file_memory.h"
#include "tensor/memory.h"
#include "tensor/side_stream.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class Staging {
 public:
  static constexpr int kSlots = 4;
  struct Options {
    std::int64_t window_bytes;  // of a window, all its tensors together
    bool on_disk = false;       // where the tensors are, which meta's do not know
    // Of tensors on a disk: where on the host there is room for windows on their way, if the device's memory is not the
    // host's (disk_copies.h).
    Memory* rooms = nullptr;
    bool rounds_apart = false;  // no window is brought before its round begins: somebody changes tensors between rounds
  };
  enum class Access { read, write, change };
  // Flat tensors of one length, on the host or on a disk, or on meta where the stream is.
  struct Part {
    Part(const Tensor& t, Access a = Access::change) : tensor(t), access(a) {}
    Tensor tensor;
    Access access;
  };
  using Pass = std::vector<Part>;
  struct Window {
    std::int64_t begin, count;      // elements of the pass
    std::span<const Tensor> parts;  // of each tensor these elements, on the device
    Stream& stream;                 // that the work is given to
  };
  using Work = std::function<void(const Window&)>;
  // Bytes since the beginning, to the device and back, of windows that were worked on.
  struct Traffic {
    std::int64_t to_device = 0, from_device = 0;
    bool operator==(const Traffic&) const = default;
  };

  // Windows are cut at multiples of 256 elements, those of a disk at its blocks. The slots are as large as the largest
  // window that comes.
  Staging(const Options& options, std::vector<Pass> passes, Memory& memory, Stream& compute);
  ~Staging();  // what was worked on and is not back yet is lost where settle() was not called before

  // Works on every window of the pass. Passes come in their order, each once before any comes again.
  void run(int pass, const Work& work);
  // The stream that brings windows: what it is told to wait for now comes before the next ones.
  Stream& up() { return up_ ? up_->stream() : compute_; }
  // What the compute stream is given from now on comes after the last run of the pass.
  void wait_for(int pass);
  // What the stream is given from now on comes after the pass' tensors are back in their places.
  void wait_until_back(int pass, Stream& stream);
  // The windows of a pass outside of the order, one after the other, worked on in the compute stream. Returns when all
  // is done.
  void visit(const Pass& pass, const Work& work);
  // Returns when all that was changed is back in its place. Offloaded tensors may be read then.
  void settle();
  // After settle(), offloaded tensors may be changed by somebody else: windows that are here already are brought again.
  void forget();

  const Traffic& traffic() const { return traffic_; }

 private:
  struct Place {
    int pass;
    std::int64_t begin, count;
    std::unique_ptr<Event> stored;  // what was last worked on is back
  };
  struct Slot {
    std::unique_ptr<Event> there, done, free;  // it was brought, worked on, taken back
    std::vector<disk::FileMemory::Moving> moving;
    std::int64_t written = -1;  // the window that is being written to the disk; -1: none is
  };
  void bring(std::int64_t number);
  void take_back(std::int64_t number);
  void finish(Slot& slot);
  std::vector<Tensor> parts_of(std::int64_t number) const;
  std::vector<Tensor> parts_in(const Buffer& buffer, const Pass& pass, std::int64_t count, std::int64_t offset) const;
  std::vector<Tensor> rooms_of(std::int64_t number) const;
  bool through_rooms() const { return rooms_.memory() && compute_.device() != Device::meta; }
  const Pass& pass_of(const Place& place) const { return passes_[static_cast<std::size_t>(place.pass)]; }
  Place& place(std::int64_t number) { return order_[static_cast<std::size_t>(number) % order_.size()]; }
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number % kSlots)]; }
  Stream& work() { return work_ ? work_->stream() : compute_; }
  Stream& down() { return down_ ? down_->stream() : compute_; }

  bool on_disk_, rounds_apart_;
  std::vector<Pass> passes_;
  Stream& compute_;
  std::optional<SideStream> up_, work_, down_;  // of a GPU; elsewhere the compute stream is all of them
  std::vector<Place> order_;                    // of all windows
  std::vector<std::int64_t> first_;             // by pass: its first in the order; in the end, how many there are
  std::int64_t slot_bytes_ = 0, aligned_ = 0;   // the second: where in the buffer the slots begin
  Buffer buffer_;
  Buffer rooms_;                  // on the host, of the slots; none where windows are read and written as they are
  std::int64_t rooms_begin_ = 0;  // where in them the first is
  DiskCopies disk_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Event>> passed_;  // by pass: its work is done
  std::unique_ptr<Event> reached_;              // the compute stream is at run()
  std::int64_t brought_ = 0, worked_ = 0;       // windows since the beginning, round after round
  Traffic traffic_;
};

}  // namespace lockstep
