// The processes that a test program under mpirun is one of.
#pragma once
#include <map>
#include <memory_resource>
#include <mutex>

#include "comm/mpi/world.h"

namespace lockstep::tests {

// What the command line asks of the world: --hosts=0,0,1 --slot=4096 --deadline=5 --least_seen=0, and of a rank that
// may not see the others' tensors, --blind=2.
MpiOptions options_of(int argc, char** argv);

class Processes {
 public:
  // Between main's beginning and end.
  static Communicator& world();
  static MpiWorld& mpi();
  static const MpiOptions& options();
};

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

// This process's part in a drill (drill.cpp), what it has to say added to the report; its exit status.
int run_drill(const std::string& drill, const std::string& report, const MpiOptions& options);

}  // namespace lockstep::tests
