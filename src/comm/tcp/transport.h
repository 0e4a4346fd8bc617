// Messages between hosts over TCP: one connection (link.h) per rank of another host, made at the start (connect.h).
//
// One thread does what the sockets have to do, asleep in epoll while there is nothing; where ranks are all of one host
// there is none. Whoever posts a message writes what the system takes of it at once. There are no collectives of its
// own: `native` is `canonical`. A connection that is lost, or on which something comes that is no message, is a failure
// of all: "rank 2 (host b) is gone: …".
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/tcp/connect.h"
#include "comm/tcp/link.h"

namespace lockstep::tcp {

class Transport final : public processes::Transport {
 public:
  Transport(Connecting how, int size) : how_(std::move(how)), size_(size) {}
  ~Transport() override;
  int rank() const override { return how_.rank; }
  int size() const override { return size_; }
  std::vector<std::string> gather(const std::string& mine) override { return how_.gather(mine); }
  void set_wakeup(processes::Wakeup& wakeup) override { wakeup_ = &wakeup; }
  void listen(OnNotice on_notice) override { on_notice_ = std::move(on_notice); }
  void connect(const processes::RankHosts& hosts) override;

  std::shared_ptr<Completion> post(std::vector<Transfer> transfers, std::shared_ptr<void> holds) override;
  void tell(const std::vector<int>& ranks, const FailureNotice& notice) override;
  bool has_native(const Message&, int) const override { return false; }
  std::shared_ptr<Completion> start_native(const Message&, bool, const std::vector<int>&, std::uint64_t) override;

  bool poll() override { return false; }
  bool is_polled() const override { return false; }
  bool idle() override;
  void finalize() override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Peer {
    Link link;
    std::string name;     // "rank 2 (host b)"
    bool writes = false;  // epoll waits for that too
    bool gone = false;
  };
  using Work = std::function<bool(Link&)>;  // whether the other end is still there

  void run();
  void handle(int rank, std::uint32_t events);
  // Does it, and whatever else can be done with the link now. The mutex is held.
  void work_on(int rank, const Work& work);
  void lose(Peer& peer, const std::string& how);
  void watch(int rank, Peer& peer, bool writes);

  const Connecting how_;
  const int size_;
  processes::Wakeup* wakeup_ = nullptr;
  OnNotice on_notice_;
  control::Socket epoll_;
  const control::Waker waker_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null where there is no connection
  std::vector<FailureNotice> notices_;        // for the thread to hand on, without the mutex
  bool finished_ = false;                     // a completion is, and nobody was woken yet
};

}  // namespace lockstep::tcp
