// Saves checkpoints while training goes on.
//
// save() copies the live tensors into a snapshot on the host, in the stream's order, and returns; a thread writes the
// snapshot to the disk (checkpoint_folder.h says how). The live tensors may change as soon as save() returns. One save
// is in flight at a time: the next save() first waits for it.
//
// The snapshot buffer is taken once, from `host`, as workspace of the unit "checkpoint". On meta the same bytes are
// counted, and saving does nothing.
//
// An error of the writing thread surfaces, once, from the next save() or wait(); a save() that rethrows has not saved,
// and may be called again. The destructor waits, and swallows the error: call wait() before.
//
// Owns nothing but the snapshot: tensors and `host` outlive it. Called from one thread at a time; the disk's hook is
// called from the writing thread.
#pragma once
#include <exception>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/disk.h"
#include "checkpoint/state.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep {

class CheckpointWriter {
 public:
  // Together the tensors cover each (part, name) exactly. `host` is the cpu's memory, or meta's when the tensors are.
  CheckpointWriter(CheckpointFolder folder, std::vector<StateTensor> tensors, Memory& host, Disk disk = Disk());
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void save(const Progress& progress, Stream& stream);
  void wait();  // until no save is in flight

 private:
  CheckpointFolder folder_;
  std::vector<StateTensor> live_, snapshot_;  // the same tensors, as they change and as they were
  Disk disk_;
  Buffer buffer_;
  std::thread thread_;
  std::exception_ptr error_;  // the thread's, read after joining it
};

}  // namespace lockstep
