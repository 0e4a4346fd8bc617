#include "campaign/small_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace lockstep::tests {

namespace fs = std::filesystem;

void SmallNetwork::run(const std::string& command) const {
  if (std::system((command + " >/dev/null 2>&1").c_str()) != 0) throw std::runtime_error("failed: " + command);
}

SmallNetwork::SmallNetwork(int number, int hosts, const fs::path& folder)
    : hub_(fmt::format("lockstep-hub-{}", number)), enter_(folder / "enter") {
  for (int host = 0; host < hosts; ++host) names_.push_back(fmt::format("10.79.{}.{}", number, host + 1));
  for (const std::string& name : names_) (void)std::system(fmt::format("ip netns del {} 2>/dev/null", name).c_str());
  (void)std::system(fmt::format("ip netns del {} 2>/dev/null", hub_).c_str());
  run(fmt::format("ip netns add {0} && ip -n {0} link add hub type bridge && ip -n {0} link set hub up", hub_));
  for (int host = 0; host < hosts; ++host)
    run(
        fmt::format("ip netns add {0} && ip link add cable netns {0} type veth peer name port{1} netns {2} && "
                    "ip -n {0} address add {0}/24 dev cable && ip -n {0} link set lo up && ip -n {0} link set cable up "
                    "&& ip -n {2} link set port{1} master hub && ip -n {2} link set port{1} up",
                    names_[static_cast<std::size_t>(host)], host, hub_));
  std::ofstream(enter_)
      << "#!/bin/sh\nexec ip netns exec \"$1\" unshare --uts sh -c 'hostname \"$0\" && mount -t tmpfs "
         "-o mode=1777 tmpfs /dev/shm || exit 5; exec \"$@\"' \"$@\"\n";
  fs::permissions(enter_, fs::perms::owner_all);
}

SmallNetwork::~SmallNetwork() {
  for (const std::string& name : names_) (void)std::system(fmt::format("ip netns del {} 2>/dev/null", name).c_str());
  (void)std::system(fmt::format("ip netns del {} 2>/dev/null", hub_).c_str());
}

std::vector<std::string> SmallNetwork::enter(int host) const {
  return {enter_.string(), names_[static_cast<std::size_t>(host)]};
}

void SmallNetwork::cut(int host, bool cut) const {
  run(fmt::format("ip -n {} link set port{} {}", hub_, host, cut ? "down" : "up"));
}

void SmallNetwork::lose_packets(int host, int percent) const {
  const std::string nft = fmt::format("ip netns exec {} nft ", names_[static_cast<std::size_t>(host)]);
  if (percent == 0) return run(nft + "delete table inet loss");
  run(nft + fmt::format("'add table inet loss; add chain inet loss in {{ type filter hook input priority 0; }}; "
                        "add rule inet loss in iifname cable numgen random mod 100 < {} drop'",
                        percent));
}

void SmallNetwork::join_network(int host) const {
  const int file = ::open(fmt::format("/run/netns/{}", names_[static_cast<std::size_t>(host)]).c_str(), O_RDONLY);
  if (file < 0 || ::setns(file, CLONE_NEWNET) != 0) throw std::runtime_error("setns failed");
  ::close(file);
}

}  // namespace lockstep::tests
