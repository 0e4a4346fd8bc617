// Saves checkpoints while training continues.
//
// save() copies the live tensors into a snapshot on the host, in the stream's order; a thread writes the snapshot to
// the disk (checkpoint_folder.h says how). One save is in flight at a time: the next save() first waits for it.
//
// Where the stream runs ahead, save() returns before the copy is made, and a stream of its own makes it beside what the
// stream is given next: whatever changes live tensors must come after being_read(). Elsewhere they may change as soon
// as save() returns. A GPU's snapshot is page-locked, or the copy would take the host's help.
//
// With room on the tensors' device (`beside`), save() copies them there, in the stream's order and at the speed of that
// device's memory, and they may change as soon as it returns. The thread brings what is there to the host, however many
// steps that takes, kPiece bytes at a time and one piece after the other, so that other copies to the host get between.
//
// A save that fails is tried again from the same snapshot, after pauses that grow (try_save.h), until it succeeds, the
// next save() replaces it by its newer state, or wait() has run out of patience. So a disk that was full for a while
// costs nothing, and the memory is that of one snapshot. events() reports the results of saves as soon as they are
// known.
//
// Each rank has a writer for the pieces that it writes, and a thread; the threads meet through a communicator of their
// own, while the ranks continue to train. All ranks save the same steps. Between tries the threads meet too, so that
// all try again, or none does: rank 0's clock decides when, and any rank may give up for all.
//
// The snapshot buffer is taken once, from `host`, as workspace of the unit "checkpoint" (of a folder of
// copies, "copies"), and as many bytes from `beside`. On meta the same bytes are counted, and saving does nothing.
//
// Failure: save() and wait() throw when the group of ranks has failed; nothing can be saved any more then. All other
// failures are events and results. The destructor gives up what is failing, waits for a try in flight, and swallows
// errors: call wait() before.
//
// Owns nothing but the snapshot: tensors, `host`, `beside`, `ranks` and what `folder` points to outlive it. Called from
// one thread at a time; the disk's hook and the communicator are used by the writing thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/disk.h"
#include "checkpoint/state.h"
#include "checkpoint/try_save.h"
#include "tensor/memory.h"
#include "tensor/side_stream.h"
#include "tensor/stream.h"

namespace lockstep {

// The result of the save of a step. A save that fails again with the same message is reported once.
struct SaveEvent {
  std::int64_t step = 0;
  SaveOutcome outcome = SaveOutcome::saved;
  std::string words;  // why not
  bool operator==(const SaveEvent&) const = default;
};

class CheckpointWriter {
 public:
  // The pieces that this rank writes: of all ranks together they cover each (part, name) exactly. `host` is the cpu's
  // memory, or meta's when the tensors are. `ranks` are on the host and used by nobody else; none: alone. `beside` is
  // of the device that the tensors are on, or meta's; none: they are copied to the host at once.
  CheckpointWriter(CheckpointFolder folder, std::vector<StateTensor> pieces, Memory& host, Disk disk = Disk(),
                   Communicator* ranks = nullptr, RetryPauses pauses = {}, Memory* beside = nullptr);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void save(const Progress& progress, Stream& stream);
  // The same pieces, which are elsewhere by now. They are read one after the other, and `turn` is called before each.
  using Turn = std::function<void(const StateTensor& next)>;
  void save(const Progress& progress, std::vector<StateTensor> pieces, Stream& stream, const Turn& turn);
  // Reached when the last save has read the live tensors; null where it has by now.
  Event* being_read();
  // Until the last save is on the disk, or was refused, or has failed again `patience` seconds from now on. What is
  // failing is tried again at once. Without a save: saved.
  SaveResult wait(double patience = 0);
  bool failing();                   // the last save has failed so far
  std::vector<SaveEvent> events();  // since it was asked before

 private:
  static constexpr std::int64_t kPiece = 32 << 20;
  using Clock = std::chrono::steady_clock;
  enum class Next { again, give_up, pause };
  void save(const Progress& progress, Stream& stream, const Turn& turn);
  void snapshot(Stream& stream, const Turn& turn);
  void bring_to_host();
  void write(const Progress& progress);
  void tell(const Progress& progress, const SaveResult& result);
  bool pause(double seconds);
  Next agree(Next mine);
  void join();

  CheckpointFolder folder_;
  std::vector<StateTensor> live_, snapshot_;  // the same tensors, as they change and as they were
  std::vector<Tensor> held_;                  // places of all in `beside`, in which some of them are
  std::vector<std::size_t> in_held_;          // which those are, of the last save
  int gpu_ = 0;                               // that they are on, if on any
  std::optional<SideStream> side_;            // of a GPU's tensors, that copies them
  std::unique_ptr<Event> complete_, read_;    // the state to be saved is there; it was copied
  bool reads_ = false;                        // a save has begun to, since being_read() was null
  Disk disk_;
  Communicator* ranks_;
  RetryPauses pauses_;
  Buffer buffer_, beside_;
  std::thread thread_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<SaveEvent> events_;
  SaveResult result_;                     // of the last try
  bool tried_ = false;                    // at least once
  bool given_up_ = false;                 // nobody wants it any more
  bool hurry_ = false;                    // somebody waits: try again at once
  std::optional<Clock::time_point> end_;  // of the patience of whoever waits
  std::exception_ptr broken_;             // the group has failed
};

}  // namespace lockstep
