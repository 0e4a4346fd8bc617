// The listening end of the control plane: it lets in who proves the token, and bounds what everybody else costs.
//
// It has no thread. Whoever owns it polls it together with its own connections:
//
//   Listener listener({.address = "127.0.0.1", .token = text, .notify = report});
//   for (;;) {
//     std::vector<pollfd> polled = {…};                 // the caller's
//     listener.watch(polled);                           // and the listener's, at the end
//     ::poll(polled.data(), polled.size(), 20);         // at least every 50 ms: time passes for strangers, too
//     for (Listener::Arrival& peer : listener.serve(polled)) mine.push_back(std::move(peer.stream));
//     …                                                 // read(), frames.feed(), frames.next(), write(Frame), flush()
//   }
//
// An arrival's stream is secured (comm/control/socket.h): it carries sealed frames and nothing else. A CommError of its
// frames.next() ends that connection alone; report() says so once per address. Close an arrival that does not say who
// it is within kUnprovenTime: whoever has the token can still be silent.
//
// Strangers: 64 bytes are read from each and nothing of them is parsed. One that has not answered rightly after
// kUnprovenTime is closed, however busily it sends. Of more than kMostUnproven the address that has most of them gives
// up its oldest, so that a crowd from one address closes none of another; no connection is closed for that before it
// has had kTimeToAnswer, and until then newcomers wait in the system's queue, so that at most 5,120 handshakes a second
// are begun and a rank that answers is let in from any address. Wrong answers are refused aloud kMostRefusals times per
// address and second, and after that closed without a word; right ones are let in however many were wrong. Wrong tokens
// are reported once per address.
//
// Failure: UserError where the address or token is of no use, or the build lacks libsodium. serve() does not throw for
// anything a peer does; no memory is the system's exception. One thread at a time.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "comm/control/handshake.h"
#include "comm/control/socket.h"

struct pollfd;

namespace lockstep::control {

struct ListenerOptions {
  std::string address = "127.0.0.1";                          // or an interface's name
  int port = 0;                                               // 0: any that is free
  std::string token = {};                                     // Token::make()
  std::function<void(const std::string& words)> notify = {};  // called by serve() and report()
};

class Listener {
 public:
  static constexpr std::size_t kMostUnproven = 256;
  static constexpr double kUnprovenTime = 2, kTimeToAnswer = 0.05;
  static constexpr int kMostRefusals = 32;

  struct Arrival {
    TcpStream stream;
    std::string from;  // its address
  };
  // What is reported once per address, each apart, so that one does not hide the other.
  enum class Trouble : std::uint8_t { wrong_token, broken_frames, system };

  explicit Listener(ListenerOptions options);

  const std::string& address() const { return address_; }  // numeric
  int port() const { return port_; }

  void watch(std::vector<pollfd>& polled);
  std::vector<Arrival> serve(std::span<const pollfd> polled);
  void report(Trouble trouble, const std::string& from, const std::string& words);

 private:
  struct Stranger {
    TcpStream stream;
    CoordinatorHandshake handshake;
    std::string from;
    Clock::time_point since = Clock::now();
    std::string answer = {};
    bool refused = false, gone = false;
  };

  void hear(Stranger& stranger, std::vector<Arrival>& arrivals);
  void refuse(Stranger& stranger);
  void accept_all();
  bool make_room();

  const std::function<void(const std::string& words)> notify_;
  const Token token_;
  const Socket listening_;
  const std::string address_;
  const int port_;

  std::list<Stranger> strangers_;  // the oldest first
  std::size_t watched_from_ = 0;   // where in the polled its own begin
  Clock::time_point full_until_ = {};
  Clock::time_point refusals_since_ = {};
  std::map<std::string, int> refusals_;  // in this second, by address
  std::map<Trouble, std::set<std::string>> reported_;
};

}  // namespace lockstep::control
