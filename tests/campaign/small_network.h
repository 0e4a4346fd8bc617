// Hosts that are one machine: network namespaces joined by a bridge, each with a name, an address and a /dev/shm of its
// own. Files are shared, as on a cluster. For root alone.
//
// A host's name is its address, so that every program finds it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::tests {

class SmallNetwork {
 public:
  // `number` makes names that no other has; the folder is for the script that enters a host.
  SmallNetwork(int number, int hosts, const std::filesystem::path& folder);
  ~SmallNetwork();
  SmallNetwork(const SmallNetwork&) = delete;
  SmallNetwork& operator=(const SmallNetwork&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  std::vector<std::string> enter(int host) const;  // the words before a command that runs there
  void cut(int host, bool cut) const;              // its cable
  void lose_packets(int host, int percent) const;  // of those that arrive; 0: none
  // Runs this with the host's network.
  template <class Body>
  void within(int host, const Body& body) const {
    join_network(host);
    body();
  }

 private:
  void join_network(int host) const;  // this thread, for good
  void run(const std::string& command) const;
  std::string hub_;
  std::vector<std::string> names_;
  std::filesystem::path enter_;
};

}  // namespace lockstep::tests
