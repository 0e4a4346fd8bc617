#include "dashboard/access.h"

#include <arpa/inet.h>
#include <strings.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace lockstep {

std::string make_token() {
  std::array<unsigned char, 20> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw EnvironmentError("getrandom: the system gave no random numbers");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

void check_token(std::string_view token, const std::string& where) {
  const bool printable = std::ranges::all_of(token, [](unsigned char c) { return c > ' ' && c < 127; });
  if (printable && token.size() >= kLeastTokenBytes && token.size() <= kMostTokenBytes) return;
  throw UserError(ExitCode::usage,
                  fmt::format("the token of {} is not {} to {} printable characters without spaces", where,
                              kLeastTokenBytes, kMostTokenBytes),
                  "leave it out to have one made");
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return different == 0;
}

Access::Access(std::string token, std::vector<std::string> hosts)
    : token_(std::move(token)),
      session_(make_token()),
      // Cookies of a host are shared by all its ports: another dashboard there has another name.
      cookie_name_("lockstep_" + make_token().substr(0, 8)),
      hosts_(std::move(hosts)) {}

bool Access::allows_host(std::string_view header) const {
  std::string name(header);
  if (name.size() > 255) return false;
  const auto digits = [](std::string_view text) {
    return text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (name.starts_with('[')) {  // [::1]:8421
    const std::size_t end = name.find(']');
    if (end == name.npos) return false;
    const std::string rest = name.substr(end + 1);
    in6_addr ignored;
    return (rest.empty() || (rest[0] == ':' && digits(std::string_view(rest).substr(1)))) &&
           inet_pton(AF_INET6, name.substr(1, end - 1).c_str(), &ignored) == 1;
  }
  if (const std::size_t colon = name.find(':'); colon != name.npos) {
    if (!digits(std::string_view(name).substr(colon + 1))) return false;
    name.resize(colon);
  }
  in_addr ignored;
  if (inet_pton(AF_INET, name.c_str(), &ignored) == 1) return true;
  const auto same = [&](const std::string& allowed) { return strcasecmp(allowed.c_str(), name.c_str()) == 0; };
  return same("localhost") || std::ranges::any_of(hosts_, same);
}

bool Access::allows(const HttpRequest& request) const {
  if (token_.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  if (request.authorization.starts_with(kBearer))
    return equal_in_constant_time(std::string_view(request.authorization).substr(kBearer.size()), token_);
  const std::string wanted = cookie_name_ + "=";
  for (std::string_view rest = request.cookie; !rest.empty();) {
    const std::size_t end = rest.find(';');
    std::string_view one = rest.substr(0, end);
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one.starts_with(wanted) && equal_in_constant_time(one.substr(wanted.size()), session_)) return true;
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  return false;
}

std::string Access::login(std::string_view token) const {
  if (token_.empty() || !equal_in_constant_time(token, token_)) return "";
  return fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name_, session_);
}

}  // namespace lockstep
