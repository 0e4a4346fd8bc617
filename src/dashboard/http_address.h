// Numeric addresses: nothing is looked up in the DNS.
#pragma once
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>

namespace lockstep {

struct FreeAddress {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using AddressInfo = std::unique_ptr<addrinfo, FreeAddress>;

// Null for what is no numeric address of IPv4 or IPv6.
AddressInfo numeric_address(const std::string& address, int port);

}  // namespace lockstep
