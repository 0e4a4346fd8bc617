// The processes that a test program is one of, whatever has started them: mpirun (tests/mpi), or the program itself
// (tests/tcp).
#pragma once
#include <map>
#include <memory_resource>
#include <mutex>
#include <string>

#include "comm/processes/world.h"

namespace lockstep::tests {

// What follows --name= on the command line; empty: nothing.
std::string argument(int argc, char** argv, const std::string& name);

// What the command line asks of the world: --hosts=0,0,1 --slot=4096 --deadline=5 --least_seen=0, and of a rank that
// may not see the others' tensors, --blind=2.
ProcessOptions options_of(int argc, char** argv, const std::string& rank);

class Processes {
 public:
  // While run_tests() runs.
  static Communicator& world();
  static processes::World& ranks();
  static const ProcessOptions& options();
};

// Runs this program's tests as a rank of the world. Rank 0 prints as usual; the others print their failures alone,
// "rank 3: " before them. --shared=0,2 on the command line: rows of these ranks are where the others can see them.
int run_tests(int argc, char** argv, processes::World& world, const ProcessOptions& options);

// Memory of a communicator as a resource: rows that are made while it is the default one lie there.
class SharedRows final : public std::pmr::memory_resource {
 public:
  // The default one while it lives, where the communicator has such memory and it is wanted.
  explicit SharedRows(Communicator& comm, bool wanted = true) : memory_(comm.memory(ledger_)) {
    if (memory_ && wanted) std::pmr::set_default_resource(this);
  }
  ~SharedRows() override {
    if (std::pmr::get_default_resource() == this) std::pmr::set_default_resource(nullptr);
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    Buffer buffer = memory_->allocate(static_cast<std::int64_t>(bytes), Tag::data);
    void* const data = buffer.data();
    const std::lock_guard lock(mutex_);
    buffers_.emplace(data, std::move(buffer));
    return data;
  }
  void do_deallocate(void* data, std::size_t, std::size_t) override {
    const std::lock_guard lock(mutex_);
    buffers_.erase(data);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::mutex mutex_;
  std::map<void*, Buffer> buffers_;
};

}  // namespace lockstep::tests
