#include "campaign/strangers.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "campaign/campaign_case.h"

namespace lockstep::tests {

int disturb(const std::string& address, int port, double seconds, std::uint64_t seed) {
  Draws draws(seed);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::vector<int> open;
  int made = 0;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return 0;
  while (std::chrono::steady_clock::now() < until) {
    const int one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (one < 0) break;
    (void)::connect(one, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::string bytes(static_cast<std::size_t>(draws.below(4000)), '\0');
    for (char& c : bytes) c = static_cast<char>(draws.next());
    if (draws.below(3) == 0) bytes.clear();  // it says nothing and stays
    made += bytes.empty() || ::send(one, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0 ? 1 : 0;
    open.push_back(one);
    if (open.size() > 200 || draws.below(4) == 0) {
      ::close(open.front());
      open.erase(open.begin());
    }
  }
  for (const int one : open) ::close(one);
  return made;
}

}  // namespace lockstep::tests
