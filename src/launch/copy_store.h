// What a host holds of the copies of a run's state (checkpoint/state_copy.h), in its folder in memory:
//
//   DIR/step-00000100/          what its own ranks have written, and what was brought for an epoch
//   DIR/of-2/step-00000100/     what the ranks of host 2 have written, mirrored here
//   DIR/exchange                by the agent: there are other hosts
//   DIR/ready                   by the first rank here: a copy of a step is written and waits to be mirrored
//   DIR/mirrored                by the agent: the step that another host has, too
//
// A copy is of use when every file that its manifest names is somewhere. Of the files mirrored here for a host there
// are two generations: a new one is written over the older one.
//
// Failure: EnvironmentError. Any thread, one for each folder that is written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

// As in checkpoint/state_copy.h, which ranks go by.
inline constexpr const char* kExchangeName = "exchange";
inline constexpr const char* kReadyName = "ready";
inline constexpr const char* kMirroredName = "mirrored";

class CopyStore {
 public:
  explicit CopyStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const std::filesystem::path& folder() const { return folder_; }

  // By step, the files that are here, whoever wrote them.
  std::map<std::int64_t, std::set<std::string>> list() const;
  std::optional<std::filesystem::path> find(std::int64_t step, const std::string& name) const;
  // The files that a copy is made of beside its manifest, by name, and their bytes; nothing where it is no manifest.
  static std::optional<std::map<std::string, std::int64_t>> files_of(const std::filesystem::path& manifest);

  struct Ready {
    std::int64_t step = 0;
    std::int64_t committed = 0;  // that is complete on all hosts, and stays until this one is
    std::filesystem::path folder;
    std::vector<std::string> files;
  };
  std::optional<Ready> ready() const;
  void write_mirrored(std::int64_t step) const;

  // Where the files of a host's copy are written to, and their final place once all are there.
  std::filesystem::path begin_mirror(int agent, std::int64_t step, std::int64_t committed) const;
  void finish_mirror(int agent, std::int64_t step, const std::set<std::string>& files) const;
  void remove_mirrors() const;
  // Where a file that is brought for an epoch is written to, and its place in the copy.
  std::filesystem::path begin_file() const { return folder_ / "brought"; }
  void finish_file(std::int64_t step, const std::string& name) const;

 private:
  std::vector<std::filesystem::path> places_of(std::int64_t step) const;
  std::filesystem::path folder_;
};

std::string copy_step_name(std::int64_t step);  // "step-00000100"

}  // namespace lockstep
