// TCP between the coordinator and the ranks. It never blocks beyond a deadline, never raises SIGPIPE, is closed on
// exec.
//
// Addresses are numeric, names of hosts (the system's resolver; its own time limits hold there), or, to listen on, the
// name of an interface ("lo", "eth0"). The address of all interfaces is refused: ranks connect on loopback or on an
// interface that somebody has named. A Socket owns its descriptor; one thread at a time.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "comm/control/frame_stream.h"
#include "comm/control/handshake.h"
#include "comm/wait_policy.h"

namespace lockstep::control {

using waiting::Clock;
using waiting::seconds;
using waiting::seconds_since;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// Listens; a UserError where the address is none of this machine's, of all interfaces, or taken.
Socket listen_on(const std::string& address, int port);
int port_of(const Socket& socket);
// "127.0.0.1", "::1".
std::string address_of(const Socket& socket);

// The next who has connected, non-blocking; none where nobody waits. `from` gets the address.
Socket accept_from(const Socket& listening, std::string& from);

// Connects, or gives the reason why not. A UserError where the address has no meaning.
Socket connect_to(const std::string& address, int port, Clock::time_point deadline, std::string& why_not);

// Whether poll() reports one of these events before the deadline.
bool wait_for(int descriptor, short events, Clock::time_point deadline);

// Exactly `count` bytes by the deadline, or fewer where the other end has closed or the time has passed.
std::string read_exactly(const Socket& socket, std::size_t count, Clock::time_point deadline);

// A connection that carries frames: what is to go waits in a buffer of bounded size, what has come is cut into frames.
// First the handshake's bytes go over it as they are; from secure() on it carries frames, sealed, and nothing else.
class TcpStream {
 public:
  explicit TcpStream(Socket socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.descriptor(); }
  const Socket& socket() const { return socket_; }
  bool wants_to_write() const { return sent_ < outgoing_.size(); }
  std::size_t waiting() const { return outgoing_.size() - sent_; }

  void write(std::string_view bytes);
  void secure(const SessionKeys& keys);
  void write(const Frame& frame);
  void flush();  // what the system takes now
  // What has come, up to `most` bytes. False: the other end has closed, or the connection is broken.
  bool read(std::string& bytes, std::size_t most = 256 << 10);
  // Sends what is left, says that no more will come and waits for the other end to say so, but no longer than that:
  // closing with bytes unread could take back the last that was sent.
  void finish(double at_most_seconds) noexcept;

  FrameBuffer frames;

 private:
  Socket socket_;
  std::optional<FrameSealer> sealer_;
  std::string outgoing_;
  std::size_t sent_ = 0;
  bool broken_ = false;
};

std::string host_name();  // of this machine, for words

// Wakes a thread that polls. wake() from any thread.
class Waker {
 public:
  Waker();
  void wake() const noexcept;
  void clear() const noexcept;
  int descriptor() const { return event_.descriptor(); }

 private:
  Socket event_;
};

}  // namespace lockstep::control
