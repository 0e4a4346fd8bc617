// Somebody on the way between ranks and their coordinator: passes everything on, keeps a copy, and changes a bit when
// told to.
#pragma once
#include <poll.h>

#include <list>

#include "comm/control/socket.h"

namespace lockstep::tests {

class Eavesdropper {
 public:
  explicit Eavesdropper(int coordinators_port)
      : listening_(control::listen_on("127.0.0.1", 0)), there_(coordinators_port), thread_([this] { run(); }) {}
  ~Eavesdropper() {
    stop_ = true;
    waker_.wake();
    thread_.join();
  }

  int port() const { return control::port_of(listening_); }
  // All bytes of all connections, both ways; or the ranks' alone.
  std::string heard() const {
    const std::lock_guard lock(mutex_);
    return from_rank_ + from_coordinator_;
  }
  std::string heard_from_rank() const {
    const std::lock_guard lock(mutex_);
    return from_rank_;
  }
  // Flips a bit of the next bytes that come from there.
  void flip_next(bool from_rank) { (from_rank ? flip_from_rank_ : flip_from_coordinator_) = true; }

 private:
  struct Pair {
    control::TcpStream rank, coordinator;
  };

  void run() {
    std::list<Pair> pairs;
    while (!stop_) {
      std::vector<pollfd> polled = {{waker_.descriptor(), POLLIN, 0}, {listening_.descriptor(), POLLIN, 0}};
      for (const Pair& pair : pairs)
        for (const int descriptor : {pair.rank.descriptor(), pair.coordinator.descriptor()})
          polled.push_back({descriptor, POLLIN, 0});
      ::poll(polled.data(), polled.size(), 20);
      std::string from, why_not;
      if (control::Socket rank = control::accept_from(listening_, from)) {
        const auto soon = control::Clock::now() + control::seconds(2);
        pairs.push_back({control::TcpStream(std::move(rank)),
                         control::TcpStream(control::connect_to("127.0.0.1", there_, soon, why_not))});
      }
      std::erase_if(pairs, [&](Pair& pair) {
        return !pass(pair.rank, pair.coordinator, from_rank_, flip_from_rank_) ||
               !pass(pair.coordinator, pair.rank, from_coordinator_, flip_from_coordinator_);
      });
    }
  }

  bool pass(control::TcpStream& from, control::TcpStream& to, std::string& copy, std::atomic<bool>& flip) {
    std::string bytes;
    const bool open = from.read(bytes);
    {
      const std::lock_guard lock(mutex_);
      copy += bytes;
    }
    if (!bytes.empty() && flip.exchange(false)) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    to.write(bytes);
    to.flush();
    return open;
  }

  const control::Socket listening_;
  const int there_;
  const control::Waker waker_;
  std::atomic<bool> stop_ = false, flip_from_rank_ = false, flip_from_coordinator_ = false;
  mutable std::mutex mutex_;
  std::string from_rank_, from_coordinator_;
  std::thread thread_;
};

}  // namespace lockstep::tests
