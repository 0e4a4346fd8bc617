// Saves checkpoints while training goes on.
//
// save() copies the live tensors into a snapshot on the host, in the stream's order, and returns; a thread writes the
// snapshot to the disk (checkpoint_folder.h says how). The live tensors may change as soon as save() returns. One save
// is in flight at a time: the next save() first waits for it.
//
// Of several ranks each has a writer of the pieces that it writes, and a thread; the threads meet through a
// communicator of their own, while the ranks train on. All ranks save the same steps.
//
// The snapshot buffer is taken once, from `host`, as workspace of the unit "checkpoint". On meta the same bytes are
// counted, and saving does nothing.
//
// An error of the writing thread surfaces, once, from the next save() or wait(), of every rank (together.h says who
// throws what); a save() that rethrows has not saved, and may be called again, by all ranks, unless the communicator
// itself has failed. The destructor waits, and swallows the error: call wait() before.
//
// Owns nothing but the snapshot: tensors, `host` and `ranks` outlive it. Called from one thread at a time; the disk's
// hook and the communicator are used by the writing thread.
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
  // The pieces that this rank writes: of all ranks together they cover each (part, name) exactly. `host` is the cpu's
  // memory, or meta's when the tensors are. `ranks` are on the host and used by nobody else; none: alone.
  CheckpointWriter(CheckpointFolder folder, std::vector<StateTensor> pieces, Memory& host, Disk disk = Disk(),
                   Communicator* ranks = nullptr);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void save(const Progress& progress, Stream& stream);
  void wait();  // until no save is in flight

 private:
  CheckpointFolder folder_;
  std::vector<StateTensor> live_, snapshot_;  // the same tensors, as they change and as they were
  Disk disk_;
  Communicator* ranks_;
  Buffer buffer_;
  std::thread thread_;
  std::exception_ptr error_;  // the thread's, read after joining it
};

}  // namespace lockstep
