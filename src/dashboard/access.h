// Who may see the page: the Host header, the token, the login cookie.
//
// Host: a page of another site can make a browser send requests here under its own name (DNS rebinding). So the name
// must be a numeric address, localhost, or one that was allowed; the port is not looked at, since a tunnel has another.
//
// Token: where there is one, a request needs it as `Authorization: Bearer TOKEN`, or the cookie that login() gives for
// it: HttpOnly, SameSite=Strict, a random value of this process, not the token. It is never taken from an address line,
// which browsers and proxies keep. Comparisons take the same time wherever the texts differ.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "dashboard/http_server.h"

namespace lockstep {

inline constexpr std::size_t kLeastTokenBytes = 16, kMostTokenBytes = 1024;

// 40 random characters of [0-9a-f]. EnvironmentError where the system has no random numbers.
std::string make_token();
// Printable ASCII without spaces, kLeastTokenBytes to kMostTokenBytes of it; UserError (usage) that names `where` it
// came from.
void check_token(std::string_view token, const std::string& where);
bool equal_in_constant_time(std::string_view a, std::string_view b);

class Access {
 public:
  // An empty token: everybody who reaches the server may read.
  Access(std::string token, std::vector<std::string> hosts);

  bool allows_host(std::string_view host_header) const;
  bool allows(const HttpRequest& request) const;
  // The value of Set-Cookie; empty: a wrong token.
  std::string login(std::string_view token) const;

 private:
  std::string token_, session_, cookie_name_;
  std::vector<std::string> hosts_;
};

}  // namespace lockstep
