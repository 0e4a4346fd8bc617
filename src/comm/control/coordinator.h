// Where ranks that are processes find each other and learn of each other's end (docs/design.md, "Ranks").
//
// One process of a run, commonly rank 0's, has a Coordinator; every rank has a Session (comm/control/session.h) that
// joins it over TCP with a token (comm/control/handshake.h). It listens on one address only, loopback by default, and
// has one thread. Ranks join an epoch (comm/control/membership.h). When one has failed, or is to be followed by another
// set of ranks, ranks join the next number, which ends the one before: frames of old epochs are ignored.
//
// Connections that have not proved the token cost little: 48 bytes are read from each, it is dropped after two seconds,
// and of more than kMostUnproven the oldest is dropped first, so that no number of them keeps the ranks out. Wrong
// tokens are reported to `notify`, once per address.
//
// The constructor throws UserError where the address or token is of no use. The destructor tells ranks that are still
// connected, and takes a second at most. All functions may be called from any thread.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "comm/control/handshake.h"
#include "comm/control/membership.h"
#include "comm/control/socket.h"

namespace lockstep::control {

struct CoordinatorOptions {
  std::string address = "127.0.0.1";                          // or an interface's name
  int port = 0;                                               // 0: any that is free
  std::string token = {};                                     // Token::make()
  std::uint32_t epoch = 1;                                    // the first that ranks may join
  std::function<void(const std::string& words)> notify = {};  // of wrong tokens, from the coordinator's thread
};

class Coordinator {
 public:
  static constexpr std::size_t kMostUnproven = 128;

  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& address() const { return address_; }  // numeric
  int port() const { return port_; }

  // Waits until every rank that had joined has left or is lost; whether that came to pass. The process that has the
  // coordinator calls it last, after its own rank has left.
  bool drain(double at_most_seconds);

 private:
  struct Peer {
    enum class Stage : std::uint8_t { unproven, proven, member, closing };  // proven: knows the token
    TcpStream stream;
    CoordinatorHandshake handshake;
    std::string from;
    Stage stage = Stage::unproven;
    Clock::time_point since = Clock::now();  // of the stage
    std::string answer = {};
    int rank = -1;
    bool gone = false;
  };

  void run();
  void round(int timeout_ms);
  void accept_all();
  void listen_to(Peer& peer);
  void check_proof(Peer& peer);
  void admit(Peer& peer, const Frame& frame);
  std::string why_not(const Join& join, std::uint32_t epoch);
  void begin(std::uint32_t epoch, int size);
  void send(int rank, FrameType type, const std::string& payload);
  void dismiss(Peer& peer, const Frame& last);
  void lose(Peer& peer, const std::string& how);
  void sweep();
  void say_goodbye() noexcept;
  void tell(const std::string& from, const std::string& words);

  const CoordinatorOptions options_;
  const Token token_;
  const Socket listening_;
  const std::string address_;
  const int port_;
  const Waker waker_;
  std::atomic<bool> stop_ = false;

  // The thread's own.
  std::list<Peer> peers_;
  std::map<int, Peer*> by_rank_;  // of the current epoch
  std::unique_ptr<Membership> epoch_;
  std::set<std::string> told_;

  std::mutex mutex_;
  std::condition_variable drained_;
  bool empty_ = true;  // nobody of the epoch is there

  std::thread thread_;
};

}  // namespace lockstep::control
