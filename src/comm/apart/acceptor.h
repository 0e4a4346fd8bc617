// Where a parameter server's rank is found by workers that come, at any time.
//
// A worker's rank connects and proves that it is of this run (comm/tcp/hello.h); then it says what the connection is
// for, which life of its process it is of, and by which settings it trains. The acceptor answers, and refuses who has
// other settings. A connection that has not proven itself is dropped after two seconds, and of more than kMostUnproven
// the oldest first. Whoever has come waits here until the server takes it in.
//
// One thread uses an acceptor; it waits for nobody.
#pragma once
#include <list>
#include <string>
#include <vector>

#include "comm/apart/ranks.h"
#include "comm/control/socket.h"
#include "comm/tcp/hello.h"

namespace lockstep::apart {

inline constexpr std::size_t kMostUnproven = 128, kSettingsBytes = 32;

struct Introduction {
  int rank = 0;  // of the mesh, that has come
  Channel channel = Channel::tensors;
  std::uint64_t life = 0;  // a number of its own for each process that has been this rank
};

class Acceptor {
 public:
  // `settings`: a digest in up to kSettingsBytes characters.
  Acceptor(const std::string& address, const tcp::WorldKeys& keys, int rank, const std::string& settings);

  std::string address() const { return control::address_of(listening_); }
  int port() const { return control::port_of(listening_); }

  struct Accepted {
    Introduction introduction;
    control::Socket socket;
  };
  std::vector<Accepted> accept();  // who has connected since the last call

 private:
  struct Unproven {
    control::Socket socket;
    control::Clock::time_point since = control::Clock::now();
    std::string bytes = {};
  };
  bool listen_to(Unproven& one, std::vector<Accepted>& accepted);

  const control::Socket listening_;
  const tcp::WorldKeys keys_;
  const int rank_;
  const std::string settings_;
  std::list<Unproven> unproven_;
};

struct ServerAddress {
  int rank = 0;  // of the server
  std::string address = {};
  int port = 0;
};

// Connects and introduces itself. CommError where there is no way to it.
control::Socket introduce_to(const ServerAddress& server, const tcp::WorldKeys& keys, const Introduction& introduction,
                             const std::string& settings, control::Clock::time_point until);
// Returns when the server has accepted this rank. CommError where it does not, UserError (usage)
// where it has other settings.
void await_answer(const control::Socket& socket, const ServerAddress& server, const tcp::WorldKeys& keys, int rank,
                  control::Clock::time_point until);

}  // namespace lockstep::apart
