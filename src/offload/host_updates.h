// Updates of offloaded state on the host's own cores, where the state stays: per window of elements, gradients come
// from the device, and the weights that compute go back.
//
//   HostUpdates updates({.window_bytes = 64 << 20, .threads = 8, .controls = kStepControls}, {pass}, host, memory,
//   stream); updates.hold(control); updates.run(0, gradient, weight, [](const HostUpdates::Window& w) { adamw of these
//   elements, on w.stream }); updates.wait_for(0);
//
// It is the other way of doing what Staging does (staging.h), which brings the state to the device: there 12 bytes per
// element come and 12 go in bf16 with fp32 moments, here a gradient comes and 2 bytes go, and the host's memory and
// cores do the rest. Elements are worked on one by one, so where windows end changes no result.
//
// On a GPU there is a stream for each direction and one in which the host's calls are made, one after the other, each
// on all of its threads; windows are in kSlots slots of the host's page-locked memory, so the next gradients come and
// the last weights go meanwhile. The compute stream waits for a pass where wait_for() says so. On the cpu, where the
// device's memory is another part of the host's, all is done when run() returns. On meta bytes are counted, and the
// work is done once for every window on tensors of meta.
//
// Memories and stream outlive it. One thread uses it; on a GPU `work` is called by another one, later: what it captures
// lives until settle(). What it throws is thrown by the next call of run() or settle().
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "offload/staging.h"
#include "tensor/cpu/stream.h"
#include "tensor/memory.h"
#include "tensor/side_stream.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/transfer.h"

namespace lockstep {

class HostUpdates {
 public:
  static constexpr int kSlots = 4;
  struct Options {
    std::int64_t window_bytes;  // of a window, its gradients and weights together
    int threads;                // of the host, that work
    std::int64_t controls;      // fp64 scalars of a step
  };
  struct Pass {
    std::int64_t elements;
    DType gradient, weight;
    bool weight_comes;  // weights are masters themselves, and come with the gradient; false: the work writes all
  };
  struct Window {
    std::int64_t begin, count;  // elements of the pass
    ConstTensor gradient;       // of these elements, on the host
    Tensor weight;
    ConstTensor control;  // what was held, on the host
    Stream& stream;       // of the host's threads
  };
  using Work = std::function<void(const Window&)>;

  // Slots are in `host`; `memory` is the device's, for visits of masters, if some are offloaded.
  HostUpdates(const Options& options, std::vector<Pass> passes, Memory& host, Memory& memory, Stream& compute);
  ~HostUpdates();  // returns when nothing is under way

  // The runs that follow see the scalars as the compute stream has them now.
  void hold(ConstTensor control);
  // Works on every window of the pass, with the gradient and the weights as the compute stream has them now; the
  // device's weights become what the work leaves in Window::weight.
  void run(int pass, const ConstTensor& gradient, const Tensor& weight, const Work& work);
  // What the compute stream is given from now on comes after the last run of the pass.
  void wait_for(int pass);
  // Returns when all is done: offloaded state may be read and changed by others.
  void settle();
  // The windows of one offloaded tensor on the device, outside of passes: as Staging::visit().
  void visit(const Tensor& offloaded, Staging::Access access, const Staging::Work& work);

  const Staging::Traffic& traffic() const { return traffic_; }

 private:
  struct Slot {
    std::unique_ptr<Event> there, done, free;  // gradients came, the work was done, weights went
  };
  void call(const Work& work, const Window& window);
  void rethrow();
  bool on_meta() const { return compute_.device() == Device::meta; }
  Stream& down() { return down_ ? down_->stream() : compute_; }
  Stream& calls() { return calls_ ? calls_->stream() : compute_; }
  Stream& up() { return up_ ? up_->stream() : compute_; }

  Options options_;
  std::vector<Pass> passes_;
  Stream& compute_;
  Ledger nothing_;  // of the threads' scratch, which updates do not use
  std::unique_ptr<Memory> nowhere_;
  std::optional<cpu::Stream> threads_;           // none on meta
  std::optional<SideStream> down_, calls_, up_;  // of a GPU; elsewhere the compute stream is all of them
  std::int64_t slot_bytes_ = 0;
  Buffer buffer_, visited_;  // the slots, and a window on the device
  HostBuffer held_;          // the scalars
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Event>> passed_;  // by pass: the device has its weights
  std::unique_ptr<Event> reached_, called_;     // the compute stream is at run(); the last call was made
  std::int64_t number_ = 0;                     // windows since the beginning
  Staging::Traffic traffic_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace lockstep
