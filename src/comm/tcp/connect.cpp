#include "comm/tcp/connect.h"

#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <sstream>

#include "comm/tcp/hello.h"

namespace lockstep::tcp {

namespace {

using control::Socket;
using waiting::Clock;

constexpr double kUnprovenSeconds = 2;
const char* const kRemedy =
    "ranks of different hosts connect with each other directly: allow that between them, or name in MASTER_ADDR an "
    "address of the network that all share";

std::string who(const processes::RankHosts& hosts, int rank) {
  return fmt::format("rank {} (host {})", rank, hosts.name[static_cast<std::size_t>(rank)]);
}

// A connection of which one hello or answer is expected.
struct Unproven {
  Socket socket;
  int rank;  // whom it was made to; -1: it was accepted
  Clock::time_point since = Clock::now();
  std::string bytes = {};
};

class Connector {
 public:
  Connector(const Connecting& how, const processes::RankHosts& hosts)
      : how_(how), hosts_(hosts), until_(waiting::deadline_in(how.deadline_seconds)), joined_(hosts.host.size()) {}

  std::vector<Socket> run() {
    exchange_endpoints();
    for (int rank = 0; rank < how_.rank; ++rank)
      if (elsewhere(rank)) connect(rank);
    while (!missing().empty()) round();
    return std::move(joined_);
  }

 private:
  struct Endpoint {
    std::string address;
    int port = 0;
  };

  bool elsewhere(int rank) const {
    return hosts_.host[static_cast<std::size_t>(rank)] != hosts_.host[static_cast<std::size_t>(how_.rank)];
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(joined_.size()); ++rank)
      if (elsewhere(rank) && !joined_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return ranks;
  }

  // A rank that cannot listen says so to all: nobody waits for it.
  void exchange_endpoints() {
    std::string mine;
    try {
      listening_ = control::listen_on(how_.address, 0);
      mine = fmt::format("{} {}", control::address_of(listening_), control::port_of(listening_));
      if (how_.rank == 0) mine += " " + WorldKeys::make().text();
    } catch (const std::exception& error) {
      mine = fmt::format("! {}: {}", who(hosts_, how_.rank), error.what());
    }
    const std::vector<std::string> all = how_.gather(mine);
    for (const std::string& text : all)
      if (text.starts_with("! ")) throw CommError(text.substr(2));
    for (int rank = 0; rank < static_cast<int>(joined_.size()); ++rank) {
      Endpoint endpoint;
      std::string keys;
      std::istringstream text(all.at(static_cast<std::size_t>(rank)));
      if (!(text >> endpoint.address >> endpoint.port))
        throw CommError(fmt::format("{} has given no address to connect to", who(hosts_, rank)));
      endpoints_.push_back(endpoint);
      if (rank == 0 && text >> keys) keys_ = WorldKeys::parse(keys);
    }
  }

  void connect(int rank) {
    const Endpoint& at = endpoints_[static_cast<std::size_t>(rank)];
    std::string why_not;
    Socket socket = control::connect_to(at.address, at.port, until_, why_not);
    if (!socket)
      throw CommError(fmt::format("{} cannot reach {} at {}, port {} ({}); {}", who(hosts_, how_.rank),
                                  who(hosts_, rank), at.address, at.port, why_not, kRemedy));
    const std::string hello = hello_with(keys_.hello, {.from = how_.rank, .to = rank});
    if (::send(socket.descriptor(), hello.data(), hello.size(), MSG_NOSIGNAL) != std::ssize(hello))
      throw CommError(
          fmt::format("{} has closed its connection to {} at the start", who(hosts_, rank), who(hosts_, how_.rank)));
    unproven_.push_back({std::move(socket), rank});
  }

  void round() {
    const auto now = Clock::now();
    if (now >= until_)
      throw CommError(fmt::format("{} and {} are not connected within {} s; {}", who(hosts_, how_.rank),
                                  who(hosts_, missing().front()), how_.deadline_seconds, kRemedy));
    std::erase_if(unproven_, [&](const Unproven& one) {
      return one.rank < 0 && waiting::seconds_since(one.since) > kUnprovenSeconds;
    });
    std::vector<pollfd> polled{{listening_.descriptor(), POLLIN, 0}};
    for (const Unproven& one : unproven_) polled.push_back({one.socket.descriptor(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), 20);
    for (auto one = unproven_.begin(); one != unproven_.end();)
      one = listen_to(*one) ? std::next(one) : unproven_.erase(one);
    std::string from;
    while (Socket socket = control::accept_from(listening_, from)) {
      unproven_.push_back({std::move(socket), -1});
      const auto strangers = std::ranges::count_if(unproven_, [](const Unproven& u) { return u.rank < 0; });
      if (strangers > static_cast<std::ptrdiff_t>(kMostUnproven))
        unproven_.erase(std::ranges::find_if(unproven_, [](const Unproven& u) { return u.rank < 0; }));
    }
  }

  // Whether more is expected of it.
  bool listen_to(Unproven& one) {
    char bytes[kHelloBytes];
    const ssize_t got = ::recv(one.socket.descriptor(), bytes, kHelloBytes - one.bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got > 0) one.bytes.append(bytes, static_cast<std::size_t>(got));
    if (got > 0 && one.bytes.size() < kHelloBytes) return true;
    const auto ends = check_hello(one.bytes, one.rank < 0 ? keys_.hello : keys_.answer);
    if (one.rank >= 0) {
      if (!ends || ends->from != one.rank || ends->to != how_.rank)
        throw CommError(fmt::format("what answers {} at {}, port {}, is not {} of this run; {}", who(hosts_, how_.rank),
                                    endpoints_[static_cast<std::size_t>(one.rank)].address,
                                    endpoints_[static_cast<std::size_t>(one.rank)].port, who(hosts_, one.rank),
                                    kRemedy));
      joined_[static_cast<std::size_t>(one.rank)] = std::move(one.socket);
      return false;
    }
    if (!ends || ends->to != how_.rank || ends->from <= how_.rank || ends->from >= static_cast<int>(joined_.size()) ||
        !elsewhere(ends->from) || joined_[static_cast<std::size_t>(ends->from)])
      return false;  // a stranger
    const std::string answer = hello_with(keys_.answer, {.from = how_.rank, .to = ends->from});
    if (::send(one.socket.descriptor(), answer.data(), answer.size(), MSG_NOSIGNAL) == std::ssize(answer))
      joined_[static_cast<std::size_t>(ends->from)] = std::move(one.socket);
    return false;
  }

  const Connecting& how_;
  const processes::RankHosts& hosts_;
  const Clock::time_point until_;
  Socket listening_;
  WorldKeys keys_;
  std::vector<Endpoint> endpoints_;
  std::list<Unproven> unproven_;
  std::vector<Socket> joined_;
};

}  // namespace

std::vector<control::Socket> connect_ranks(const Connecting& how, const processes::RankHosts& hosts) {
  return Connector(how, hosts).run();
}

std::string address_towards(const std::string& other) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;  // connecting it sends nothing
  if (const int failed = ::getaddrinfo(other.c_str(), "9", &hints, &found))
    throw UserError(ExitCode::usage, fmt::format("'{}' is no address: {}", other, ::gai_strerror(failed)),
                    "name a host or an address of one");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::string problem = "no address";
  for (const addrinfo* at = found; at; at = at->ai_next) {
    const Socket socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0) return control::address_of(socket);
    problem = std::strerror(errno);
  }
  throw CommError(fmt::format("there is no way from this host to '{}': {}", other, problem));
}

}  // namespace lockstep::tcp
