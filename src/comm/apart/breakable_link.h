// A connection over TCP between a parameter server's rank and a worker's, either of which may be gone at any time.
//
// Messages go in the order of the calls, each way by itself, with their lengths before them. Nothing is sent or
// received but inside of these calls: whoever waits does the work. What a message is read from or written to must stay
// until it is done.
//
// A link breaks when the other end has closed or is gone, when a message has another length than its receiver expects,
// or when the owner says so. It stays broken: every message of it is then done, whatever has come of it. So whoever
// received must ask broken() before it uses what it got; it need not expect an exception in the middle of a step.
//
// A host that is gone closes nothing: after some seconds without a sign of it the system breaks the connection. Where
// messages are small (`prompt`), so it does when what was sent is not taken; what is large may wait for its receiver.
//
// One thread uses it.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "comm/control/socket.h"

namespace lockstep::apart {

// From now on a connection whose other end's host is gone ends after some seconds.
void end_when_host_is_gone(const control::Socket& socket);

class Link {
 public:
  struct Transfer {
    char* data = nullptr;  // of a send only read
    std::uint64_t bytes = 0, moved = 0;
    std::uint64_t length = 0;  // as it goes before the message
    std::uint64_t length_moved = 0;
    bool done = false, whole = false;  // done: or given up
  };
  using Started = std::shared_ptr<Transfer>;

  // `peer` in words, "worker 2".
  Link(control::Socket socket, std::string peer, bool prompt);

  Started send(const void* data, std::int64_t bytes);
  Started receive(void* data, std::int64_t bytes);
  // Moves what the system takes and gives now, and sees whether the other end is there.
  void advance();
  // Until it is done, or the link is broken: also after this many seconds in which nothing has moved. 0: without end.
  void wait(const Started& transfer, double seconds);

  bool broken() const { return !why_.empty(); }
  const std::string& why() const { return why_; }  // "worker 2 has closed its connection"
  const std::string& peer() const { return peer_; }
  void break_up(const std::string& why);

 private:
  bool send_some(Transfer& transfer);
  bool receive_some(Transfer& transfer);
  void look_for_end();
  void give_up_transfers();

  control::Socket socket_;
  const std::string peer_;
  std::string why_;
  std::deque<Started> sends_, receives_;
  std::uint64_t moved_ = 0;  // bytes, so far
};

}  // namespace lockstep::apart
