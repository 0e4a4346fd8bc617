#include "dashboard/http_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/error.h"
#include "dashboard/http_server.h"

namespace lockstep {

AddressInfo numeric_address(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return nullptr;
  return AddressInfo(found);
}

bool is_loopback(const std::string& address) {
  const AddressInfo info = numeric_address(address, 0);
  if (!info)
    throw UserError(ExitCode::usage, fmt::format("'{}' is no address", address),
                    "give one of this machine in digits, such as 127.0.0.1 or 0.0.0.0");
  if (info->ai_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(info->ai_addr);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(info->ai_addr);
  return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
}

}  // namespace lockstep
