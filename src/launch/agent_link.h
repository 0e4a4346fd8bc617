// The connections of an agent to others, and the messages that go over them.
//
// Every agent listens on its own address. Whoever connects proves the token first (comm/control/listener.h), then sends
// a `join` that says which agent it is; only then are its messages handed out. Agents talk to their leader alone, so a
// leader has a connection from each and the others have one. All messages are sealed.
//
//   std::vector<pollfd> polled = {…};
//   link.watch(polled);
//   ::poll(polled.data(), polled.size(), 50);
//   link.serve(polled);
//   for (const AgentLink::Received& one : link.take()) …
//
// serve() never blocks; connect() does, for as long as it is told. A connection that is lost, or that sends what makes
// no sense, is reported once by take_lost(). One thread.
#pragma once
#include <poll.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/connector.h"
#include "comm/control/listener.h"
#include "launch/agent_folder.h"
#include "launch/agent_message.h"

namespace lockstep {

class AgentLink {
 public:
  // Listens on the address and writes where into the folder. UserError where the address is none of this machine's.
  // `tell` hears of strangers.
  AgentLink(AgentFolder& folder, const std::string& address, std::function<void(const std::string&)> tell);

  const std::string& address() const { return listener_.address(); }

  // Connects to that agent and sends `join`; the reason where it cannot be reached in that time, "" where it was.
  std::string connect(int agent, const AgentMessage& join, double seconds);

  void watch(std::vector<pollfd>& polled);
  void serve(std::span<const pollfd> polled);  // takes what has come and sends what waits
  void flush();

  struct Received {
    int from;
    AgentMessage message;
  };
  std::vector<Received> take() { return std::exchange(inbox_, {}); }
  struct Lost {
    int agent;
    std::string how;
  };
  std::vector<Lost> take_lost() { return std::exchange(lost_, {}); }

  void send(int agent, const AgentMessage& message);  // nothing where it is not connected
  void drop(int agent);                               // says what is left, and closes, without a report
  bool is_connected(int agent) const { return peers_.contains(agent); }
  double silence_of(int agent) const;  // seconds since it was last heard
  void excuse(double seconds);         // in which this process did not listen

 private:
  using Clock = control::Clock;
  struct Peer {
    control::TcpStream stream;
    Clock::time_point heard = Clock::now();
  };
  struct Guest {  // who knows the token and has not said who it is
    control::TcpStream stream;
    std::string from;
    Clock::time_point since = Clock::now();
    bool gone = false;
  };

  void hear(Guest& guest);
  void hear(int agent, Peer& peer);
  void lose(int agent, const std::string& how);

  AgentFolder& folder_;
  const std::string token_text_;
  const control::Token token_;
  control::Listener listener_;
  std::list<Guest> guests_;
  std::map<int, Peer> peers_;
  std::vector<Received> inbox_;
  std::vector<Lost> lost_;
};

}  // namespace lockstep
