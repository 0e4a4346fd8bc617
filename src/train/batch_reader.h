// Reads the next batch beside the step that computes.
//
//   BatchReader reader(elements, read);
//   reader.load(first);         // the batch that begins with sample `first`: read now
//   reader.read_ahead(second);  // begun in a thread of its own; tokens() stay as they are
//   reader.load(second);        // waits for what is left of it
//
// Whatever was read ahead, load() gives the batch it is asked for: one that was not is read by the caller, and so is
// one whose reading has not begun when it is wanted, since on a full machine the thread may be long in coming. What the
// source throws, load() throws. No memory is taken after the first batch that is read ahead.
//
// One thread uses it. `read` is also called by the reader's own thread, one call at a time beside one of the user's.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace lockstep {

class BatchReader {
 public:
  using Read = std::function<void(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;

  static constexpr const char* kThreadName = "read batch";  // as the system shows it

  BatchReader(std::int64_t elements, Read read);  // no elements: there is nothing to read
  ~BatchReader();                                 // waits for a reading that has begun
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  void load(std::int64_t first);
  void read_ahead(std::int64_t first);

  // Of the batch that was loaded; they may be written to, until the next load().
  std::span<std::int32_t> tokens() { return loaded_.tokens; }
  std::span<std::int32_t> targets() { return loaded_.targets; }

 private:
  struct Batch {
    std::vector<std::int32_t> tokens, targets;
    void resize(std::size_t elements) {
      tokens.resize(elements);
      targets.resize(elements);
    }
  };
  enum class Ahead { nothing, wanted, reading, done };

  void run();
  bool take(std::int64_t first);  // what was read ahead, if it is this one

  const std::size_t elements_;
  const Read read_;
  Batch loaded_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Batch ahead_;  // the thread's while it is reading, else by mutex_; so are these
  Ahead state_ = Ahead::nothing;
  std::int64_t first_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // begins with the first batch that is read ahead
};

}  // namespace lockstep
