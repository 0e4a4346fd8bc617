// The connecting end of the control plane: a connection to a Listener (comm/control/listener.h), secured.
//
// A thread that may wait calls connect_secured(), in a loop where the other end may start later:
//
//   const Token token(text);
//   std::string why_not;
//   while (!stream && Clock::now() < deadline) stream = connect_secured(address, port, token, soon, why_not);
//   stream->write(Frame{…}); stream->flush(); …                       // sealed; frames.next() gives what is opened
//
// A thread that polls many makes a Connecting of a socket and calls advance() whenever poll() reports events() on it,
// and gives it up by its own clock: nothing here waits. From then on the stream is the caller's: read() its bytes, feed
// them to `frames`, take frames.next() until it gives none, write(Frame), flush(). A CommError of frames.next() says
// that the connection is to be given up.
//
// A CommError means that another attempt is of no use: the other end is no coordinator, of another version, does not
// know the token, or refuses this one. The token outlives all of these. One thread at a time.
#pragma once
#include "comm/control/handshake.h"
#include "comm/control/socket.h"

namespace lockstep::control {

class Connecting {
 public:
  enum class State : std::uint8_t { underway, secured, closed };  // closed: by the other end; it may be overrun

  Connecting(Socket connected, const Token& token) : stream_(std::move(connected)), handshake_(token) {}

  int descriptor() const { return stream_.descriptor(); }
  short events() const;                            // for poll()
  State advance();                                 // as far as what has come allows
  TcpStream take() { return std::move(stream_); }  // once it is secured

 private:
  bool read_up_to(std::size_t count);

  TcpStream stream_;
  RankHandshake handshake_;
  bool answered_ = false;
  std::string heard_;
};

// One attempt, blocking, by the deadline; none with the reason where another may fare better. UserError where the
// address has no meaning.
std::optional<TcpStream> connect_secured(const std::string& address, int port, const Token& token,
                                         Clock::time_point deadline, std::string& why_not);

}  // namespace lockstep::control
