#include "comm/control/connector.h"

#include <poll.h>

#include "comm/error.h"

namespace lockstep::control {

short Connecting::events() const { return static_cast<short>(POLLIN | (stream_.wants_to_write() ? POLLOUT : 0)); }

// Never more than the part that is due: what comes after the verdict is for the frames.
bool Connecting::read_up_to(std::size_t count) {
  return heard_.size() >= count || stream_.read(heard_, count - heard_.size());
}

Connecting::State Connecting::advance() {
  stream_.flush();
  bool open = true;
  if (!answered_) {
    open = read_up_to(kGreetingStart);
    if (heard_.size() >= kGreetingStart) {
      RankHandshake::check_start(heard_);
      open = open && read_up_to(kGreetingBytes);
    }
    if (heard_.size() == kGreetingBytes) {
      stream_.write(handshake_.answer(std::exchange(heard_, {})));
      stream_.flush();
      answered_ = true;
    }
  }
  if (answered_) {
    open = open && read_up_to(kVerdictBytes);
    if (heard_.size() == kVerdictBytes) {
      stream_.secure(handshake_.keys(heard_));
      return State::secured;
    }
  }
  return open ? State::underway : State::closed;
}

std::optional<TcpStream> connect_secured(const std::string& address, int port, const Token& token,
                                         Clock::time_point deadline, std::string& why_not) {
  Socket socket = connect_to(address, port, deadline, why_not);
  if (!socket) return std::nullopt;
  Connecting connecting(std::move(socket), token);
  while (wait_for(connecting.descriptor(), connecting.events(), deadline)) {
    const Connecting::State state = connecting.advance();
    if (state == Connecting::State::secured) return connecting.take();
    if (state == Connecting::State::closed) break;
  }
  why_not = "it closes the connection, or says nothing";
  return std::nullopt;
}

}  // namespace lockstep::control
