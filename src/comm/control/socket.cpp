#include "comm/control/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "comm/error.h"

namespace lockstep::control {

namespace {

struct Address {
  sockaddr_storage bytes = {};
  socklen_t length = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&bytes); }
};

std::string text_of(const Address& address) {
  char host[NI_MAXHOST] = "?";
  ::getnameinfo(address.raw(), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

void set_port(Address& address, int port) {
  const in_port_t value = htons(static_cast<std::uint16_t>(port));
  if (address.bytes.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&address.bytes)->sin_port = value;
  if (address.bytes.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&address.bytes)->sin6_port = value;
}

bool of_all_interfaces(const Address& address) {
  if (address.bytes.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_addr.s_addr == htonl(INADDR_ANY);
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(&address.bytes)->sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && !six.s6_addr32[3]);
}

[[noreturn]] void refuse(const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::usage, problem, remedy);
}

std::vector<Address> resolve(const std::string& name) {
  if (name.empty()) refuse("the coordinator has no address", "name a host, an address or an interface");
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (failed == EAI_AGAIN || failed == EAI_SYSTEM)
    throw CommError(fmt::format("the address of '{}' cannot be looked up now: {}", name, ::gai_strerror(failed)));
  if (failed)
    refuse(fmt::format("'{}' is no address: {}", name, ::gai_strerror(failed)), "name a host or an address of one");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.bytes, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

// The addresses of an interface by its name, IPv4 first; none where there is no such interface.
std::vector<Address> of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all)) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::vector<Address> addresses;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = all; at; at = at->ifa_next) {
      if (name != at->ifa_name || !at->ifa_addr || at->ifa_addr->sa_family != family) continue;
      Address address;
      address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.bytes, at->ifa_addr, address.length);
      addresses.push_back(address);
    }
  return addresses;
}

Socket open_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw CommError(fmt::format("socket: {}", std::strerror(errno)));
  return socket;
}

void set(const Socket& socket, int level, int option) {
  const int on = 1;
  ::setsockopt(socket.descriptor(), level, option, &on, sizeof on);
}

Address local_address(const Socket& socket) {
  Address address;
  address.length = sizeof address.bytes;
  ::getsockname(socket.descriptor(), address.raw(), &address.length);
  return address;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool wait_for(int descriptor, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one = {descriptor, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Socket listen_on(const std::string& name, int port) {
  if (port < 0 || port > 65535) refuse(fmt::format("there is no port {}", port), "give 0 (any that is free) to 65535");
  std::vector<Address> addresses = of_interface(name);
  if (addresses.empty()) addresses = resolve(name);
  std::string problem = "no address";
  for (Address& address : addresses) {
    if (of_all_interfaces(address))
      refuse(fmt::format("'{}' would listen on all interfaces", name),
             "name one: 127.0.0.1 for ranks of this machine, or the interface between the machines");
    set_port(address, port);
    Socket socket = open_socket(address.bytes.ss_family);
    set(socket, SOL_SOCKET, SO_REUSEADDR);
    if (::bind(socket.descriptor(), address.raw(), address.length) == 0 &&
        ::listen(socket.descriptor(), SOMAXCONN) == 0)
      return socket;
    problem = fmt::format("{}: {}", text_of(address), std::strerror(errno));
  }
  refuse(fmt::format("cannot listen on '{}', port {} ({})", name, port, problem),
         "name an interface or address of this machine, and a port that is free");
}

int port_of(const Socket& socket) {
  const Address address = local_address(socket);
  return ntohs(address.bytes.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_port
                                                  : reinterpret_cast<const sockaddr_in6*>(&address.bytes)->sin6_port);
}

std::string address_of(const Socket& socket) { return text_of(local_address(socket)); }

Socket accept_from(const Socket& listening, std::string& from) {
  Address address;
  address.length = sizeof address.bytes;
  Socket socket(::accept4(listening.descriptor(), address.raw(), &address.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return socket;
  from = text_of(address);
  set(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

Socket connect_to(const std::string& name, int port, Clock::time_point deadline, std::string& why_not) {
  if (port < 1 || port > 65535) refuse(fmt::format("the coordinator has no port {}", port), "give 1 to 65535");
  for (Address& address : resolve(name)) {
    set_port(address, port);
    Socket socket = open_socket(address.bytes.ss_family);
    int problem = ::connect(socket.descriptor(), address.raw(), address.length) == 0 ? 0 : errno;
    if (problem == EINPROGRESS) {
      socklen_t length = sizeof problem;
      if (!wait_for(socket.descriptor(), POLLOUT, deadline))
        problem = ETIMEDOUT;
      else
        ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &problem, &length);
    }
    if (problem == 0) {
      set(socket, IPPROTO_TCP, TCP_NODELAY);
      return socket;
    }
    why_not = std::strerror(problem);
  }
  return Socket();
}

std::string read_exactly(const Socket& socket, std::size_t count, Clock::time_point deadline) {
  std::string bytes(count, '\0');
  std::size_t have = 0;
  while (have < count && wait_for(socket.descriptor(), POLLIN, deadline)) {
    const ssize_t got = ::recv(socket.descriptor(), bytes.data() + have, count - have, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

void TcpStream::write(std::string_view bytes) {
  LOCKSTEP_CHECK(!sealer_, "{} bytes in the clear over a connection that is secured", bytes.size());
  outgoing_.append(bytes);
}

void TcpStream::secure(const SessionKeys& keys) {
  sealer_.emplace(keys.sending);
  frames = FrameBuffer(keys.receiving);
}

void TcpStream::write(const Frame& frame) {
  LOCKSTEP_CHECK(sealer_, "a frame over a connection that is not secured");
  sealer_->append(frame, outgoing_);
}

void TcpStream::flush() {
  while (wants_to_write() && !broken_) {
    const ssize_t got =
        ::send(descriptor(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0) {
      broken_ = true;  // read() will say so
      break;
    }
    sent_ += static_cast<std::size_t>(got);
  }
  if (sent_ == outgoing_.size() || broken_ || sent_ > kMostPayload) {
    outgoing_.erase(0, broken_ ? outgoing_.size() : sent_);
    sent_ = 0;
  }
}

bool TcpStream::read(std::string& bytes, std::size_t most) {
  char buffer[16384];
  while (most > 0) {
    const ssize_t got = ::recv(descriptor(), buffer, std::min(sizeof buffer, most), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return !broken_;
    if (got <= 0) return false;
    bytes.append(buffer, static_cast<std::size_t>(got));
    most -= static_cast<std::size_t>(got);
  }
  return true;
}

void TcpStream::finish(double at_most_seconds) noexcept {
  const auto deadline = Clock::now() + seconds(at_most_seconds);
  try {
    for (flush(); wants_to_write() && wait_for(descriptor(), POLLOUT, deadline); flush()) {
    }
    ::shutdown(descriptor(), SHUT_WR);
    std::string rest;
    while (wait_for(descriptor(), POLLIN, deadline) && read(rest)) rest.clear();
  } catch (...) {  // no memory: it is closed all the same
  }
}

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Waker::Waker() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw CommError(fmt::format("eventfd: {}", std::strerror(errno)));
}

void Waker::wake() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.descriptor(), &one, sizeof one);  // full: it is awake
}

void Waker::clear() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.descriptor(), &count, sizeof count);
}

}  // namespace lockstep::control
