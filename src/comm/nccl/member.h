// A rank of a group over NCCL: what nccl/communicator.h promises, and who does it.
//
// The operations of the group are on tracks (nccl/track.h): one for its collectives, one for each direction to and from
// another rank that has been used. The rank's own calls move them on, and so does a thread that watches, which also
// finds what is late or has failed. All of it is behind one mutex, which nobody holds while waiting for another rank.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "comm/nccl/communicator.h"
#include "comm/nccl/steps.h"
#include "comm/sequence.h"

namespace lockstep::nccl {

class Member final : public Communicator {
 public:
  using Lock = std::unique_lock<std::mutex>;
  struct Failure {
    std::string what;
    bool secondary;
  };
  // What all groups of a rank share; everything outlives them.
  struct Means {
    Library& library;
    Memory& memory;
    Stream& compute;
    Options options;
  };

  Member(const Means& means, const Id& id, const Membership& place);
  ~Member() override;

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override;

  // For its Pendings.
  bool ask(Operation& operation);
  void order(Operation& operation);
  void order_at_last(Operation& operation) noexcept;

 private:
  struct Work {
    std::string title;
    std::vector<Step> steps;
    double deadline;
  };
  std::shared_ptr<Operation> begin(Track& track, Work work);
  Track& lane(const Message& message);
  std::vector<char> gather_bytes(std::span<const char> mine, const std::string& what);
  void wait_on_host(Operation& operation, Lock& lock, const std::function<bool()>& enough);

  // All of these with the mutex held.
  void advance();
  void each_track(const std::function<void(Track&)>& each);
  void fail(const std::string& what, bool secondary) noexcept;
  void throw_failure() const {
    if (failure_) throw CommError(failure_->what, failure_->secondary);
  }
  // Runs what may find a failure, and keeps it: it is thrown by the calls that the rank makes.
  template <class Body>
  void guarded(Body&& body) noexcept {
    try {
      if (!failure_) body();
    } catch (const CommError& error) {
      fail(error.what(), error.secondary());
    } catch (const std::exception& error) {
      fail(error.what(), false);
    }
  }
  void watch(const std::stop_token& stop);
  std::string late_words(const Operation& operation) const;

  Means means_;
  Buffer staging_;
  HostBuffer told_;
  std::vector<Id> lane_ids_;  // from rank i to rank j at i · ranks + j
  Sequence sequence_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool news_ = false;  // for the thread that watches: there is something to look after
  std::optional<Failure> failure_;
  std::unique_ptr<Track> collectives_;
  std::map<std::pair<CommOp, int>, std::unique_ptr<Track>> lanes_;  // send or recv, and the other end
  std::jthread watcher_;
};

}  // namespace lockstep::nccl
