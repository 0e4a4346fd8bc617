// RUN/.launch: where the agents of a run find each other, and where an epoch is taken by one of them alone.
//
//   agent-0           address, port and process of the agent of the first host, locked while it lives
//   copies-0          the same of where its copies of the state are asked for
//   token             what they prove to each other (comm/control/handshake.h); nobody else may read it
//   leader            which of them leads, as far as is known
//   epoch-00000003    epochs that were begun, and by whom: made once, by one agent, which is what keeps the two sides
//   of
//                     a split network from both going on
//
// All hosts see the run folder: checkpoints need that too. The folder is removed when the run ends.
//
// Construction: UserError (usage) where another agent of that place is at work there; EnvironmentError for the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct AgentEndpoint {
  std::string address = {};
  int port = 0;
  std::int64_t process = 0;
};

class AgentFolder {
 public:
  AgentFolder(const std::filesystem::path& run, int agent);
  ~AgentFolder();
  AgentFolder(const AgentFolder&) = delete;
  AgentFolder& operator=(const AgentFolder&) = delete;

  std::string token();  // made by whoever comes first
  // `of`: what listens there, the agent itself or its copies of the state (copy_exchange.h).
  void write_endpoint(const AgentEndpoint& endpoint, std::string_view of = "agent");
  std::optional<AgentEndpoint> endpoint_of(int agent, std::string_view of = "agent") const;
  void write_leader(int agent);
  std::optional<int> leader() const;

  std::uint32_t last_epoch() const;      // the highest that was taken; 0: none
  bool take_epoch(std::uint32_t epoch);  // whether it is this agent's now
  bool run_is_free() const;              // nobody trains in the run folder
  bool is_there() const;                 // or has been removed, by the agent that saw the end of the run
  void remove();                         // at the end of the run; the run folder too, where nothing was put there

 private:
  std::filesystem::path epoch_file(std::uint32_t epoch) const;

  std::filesystem::path run_, path_;
  int agent_;
  int lock_ = -1;
};

}  // namespace lockstep
