// Where ranks that are processes find each other and learn of each other's end (docs/design.md, "Ranks").
//
// One process of a run, commonly rank 0's, has a Coordinator; every rank has a Session (comm/control/session.h) that
// joins it over TCP with a token, and everything between them is sealed (comm/control/handshake.h). It listens on one
// address only, loopback by default, and has one thread. Ranks join an epoch (comm/control/membership.h). When one has
// failed, or is to be followed by another set of ranks, ranks join the next number, which ends the one before: frames
// of old epochs are ignored.
//
// Connections that have not proved the token cost little and keep no rank out (comm/control/listener.h). Who has proved
// it and does not join within two seconds is dropped. A frame that does not verify or makes no sense ends its
// connection alone, and with it the epoch where it was a member's. `notify` hears of wrong tokens and of such frames,
// once per address.
//
// The constructor throws UserError where the address or token is of no use or the build
// lacks libsodium. The destructor tells ranks that are still
// connected, and takes a second at most. All functions may be called from any thread.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "comm/control/listener.h"
#include "comm/control/membership.h"
#include "comm/control/socket.h"

namespace lockstep::control {

struct CoordinatorOptions {
  std::string address = "127.0.0.1";                          // or an interface's name
  int port = 0;                                               // 0: any that is free
  std::string token = {};                                     // Token::make()
  std::uint32_t epoch = 1;                                    // the first that ranks may join
  std::function<void(const std::string& words)> notify = {};  // from the coordinator's thread
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& address() const { return listener_.address(); }  // numeric
  int port() const { return listener_.port(); }

  // Waits until every rank that had joined has left or is lost; whether that came to pass. The process that has the
  // coordinator calls it last, after its own rank has left.
  bool drain(double at_most_seconds);

 private:
  struct Peer {
    enum class Stage : std::uint8_t { proven, member, closing };  // proven: knows the token
    TcpStream stream;
    std::string from;
    Stage stage = Stage::proven;
    Clock::time_point since = Clock::now();  // of the stage
    int rank = -1;
    bool gone = false;
  };

  void run();
  void round(int timeout_ms);
  void listen_to(Peer& peer);
  void admit(Peer& peer, const Frame& frame);
  std::string why_not(const Join& join, std::uint32_t epoch);
  void begin(std::uint32_t epoch, int size);
  void send(int rank, FrameType type, const std::string& payload);
  void dismiss(Peer& peer, const Frame& last);
  void lose(Peer& peer, const std::string& how);
  void sweep();
  void say_goodbye() noexcept;

  const std::uint32_t first_epoch_;
  Listener listener_;  // the thread's own, but for address and port
  const Waker waker_;
  std::atomic<bool> stop_ = false;

  // The thread's own.
  std::list<Peer> peers_;
  std::map<int, Peer*> by_rank_;  // of the current epoch
  std::unique_ptr<Membership> epoch_;

  std::mutex mutex_;
  std::condition_variable drained_;
  bool empty_ = true;  // nobody of the epoch is there

  std::thread thread_;
};

}  // namespace lockstep::control
