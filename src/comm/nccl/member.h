// A rank of a group over NCCL: implements what nccl/communicator.h promises.
//
// The operations of the group are in flight over several links (nccl/in_flight.h): one for its collectives, one for
// each direction to and from another rank that has been used. The rank's own calls advance them, and so does a thread
// that watches, which also finds what is late or has failed. One mutex guards all of it; nobody holds it while waiting
// for another rank.
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
  // What all groups of a rank share; everything outlives them.
  struct Resources {
    Library& library;
    Memory& memory;
    Stream& compute;
    Options options;
  };

  Member(const Resources& resources, const Id& id, const Membership& place);
  ~Member() override;

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override;

  // For its Pendings.
  bool test(Operation& operation);
  void order(Operation& operation);
  void order_on_drop(Operation& operation) noexcept;

 private:
  struct Work {
    std::string title;
    std::vector<Step> steps;
    double deadline;
  };
  std::shared_ptr<Operation> begin(InFlightOperations& in_flight, Work work);
  InFlightOperations& pair(const Message& message);
  std::vector<char> gather_bytes(std::span<const char> mine, const std::string& what);
  void wait_on_host(Operation& operation, Lock& lock, const std::function<bool()>& enough);

  // All of these with the mutex held.
  void advance();
  void each_in_flight(const std::function<void(InFlightOperations&)>& each);
  void fail(const std::string& what, bool secondary) noexcept;
  void throw_failure() const {
    if (failure_) failure_->raise();
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
  std::string late_text(const Operation& operation) const;

  Resources resources_;
  Buffer staging_;
  HostBuffer counts_;
  std::vector<Id> pair_ids_;  // from rank i to rank j at i · ranks + j
  Sequence sequence_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool news_ = false;  // for the thread that watches: there is something to look after
  std::optional<CommFailure> failure_;
  std::unique_ptr<InFlightOperations> collectives_;
  std::map<std::pair<CommOp, int>, std::unique_ptr<InFlightOperations>> pairs_;  // send or recv, and the other end
  std::jthread watcher_;
};

}  // namespace lockstep::nccl
