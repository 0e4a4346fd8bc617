#include "cli/resume_from.h"

#include <fmt/ranges.h>

#include <map>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/state_copy.h"
#include "comm/gather_texts.h"
#include "spec/run/run_settings.h"
#include "spec/run/run_toml.h"
#include "train/host_values.h"

namespace lockstep {

namespace {

constexpr std::string_view kCopyMark = "copy:";  // before the name of a copy, of which each host has one

// The newest whole copy in memory of these steps, unless the disk may have something newer.
std::optional<Checkpoint> newer_copy(const std::filesystem::path& copies, const std::vector<std::int64_t>& steps,
                                     const std::filesystem::path& checkpoints, const DamageReport& report) {
  const std::vector<std::int64_t> on_disk = steps_in(checkpoints);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (!on_disk.empty() && on_disk.back() > *step) return std::nullopt;
    const std::filesystem::path copy = copies / step_folder_name(*step);
    try {
      return open_checkpoint(copy);
    } catch (const UserError& error) {
      report(copy, error.what());
    }
  }
  return std::nullopt;
}

// The newest whole checkpoint of the run's own folder, or of its backup, where that has a newer one.
std::optional<Checkpoint> with_backup(const std::filesystem::path& checkpoints, const std::string& backup,
                                      const DamageReport& report) {
  if (backup.empty()) return find_own_checkpoint(checkpoints, report);
  auto second = open_newest_whole(backup, report);
  if (!second) return find_own_checkpoint(checkpoints, report);
  auto first = open_newest_whole(checkpoints, report);
  return first && first->progress().step >= second->progress().step ? std::move(first) : std::move(second);
}

}  // namespace

std::optional<Checkpoint> checkpoint_to_resume(const std::string& named, const ResumePlaces& places,
                                               const std::function<void(const std::string&)>& note) {
  const auto report = [&](const std::filesystem::path& path, const std::string& reason) {
    note(fmt::format("skipping {}: {}", path.string(), reason));
  };
  if (named != "auto") return require_checkpoint(named, report);
  if (auto copy = newer_copy(places.copies, places.copied, places.checkpoints, report)) return copy;
  auto found = with_backup(places.checkpoints, places.backup, report);
  if (!found) note("no checkpoint there yet: the run begins at step 0");
  return found;
}

std::vector<std::int64_t> copies_of_all(const std::string& folder, Communicator* ranks) {
  if (folder.empty()) return {};
  std::vector<std::int64_t> steps = complete_copies(folder);
  if (!ranks) return steps;
  std::map<std::int64_t, int> counts;
  for (const std::string& text : gather_texts(*ranks, fmt::format("{}", fmt::join(steps, " ")))) {
    std::istringstream in(text);
    for (std::int64_t step = 0; in >> step;) ++counts[step];
  }
  std::erase_if(steps, [&](std::int64_t step) { return counts[step] < ranks->size(); });
  return steps;
}

void share_place(Communicator& ranks, std::string& from, const std::string& copies) {
  const std::filesystem::path place = from;
  if (ranks.rank() == 0 && !from.empty() && place.parent_path() == copies)
    from = std::string(kCopyMark) + place.filename().string();
  share_text(ranks, from, 0);
  if (from.starts_with(kCopyMark)) from = (std::filesystem::path(copies) / from.substr(kCopyMark.size())).string();
}

std::optional<CopyPlace> copy_place(const std::string& copies, const std::filesystem::path& from, std::int64_t room) {
  if (copies.empty()) return std::nullopt;
  const bool of_copies = from.parent_path() == copies;
  const auto step = of_copies ? step_of_folder_name(from.filename().string()) : std::nullopt;
  return CopyPlace{.folder = copies, .resumed = step.value_or(0), .room = room};
}

std::int64_t copy_every_of(const Checkpoint& copy, const RunSpec& spec) {
  std::map<std::string, std::string> now;
  for (const auto& [key, value] : settings_of(to_toml(spec))) now[key] = value;
  std::int64_t every = kCopyAuto;
  for (const auto& [key, value] : settings_of(copy.progress().run_file)) {
    if (key.starts_with("layout.") && now[key] != value) return kCopyAuto;
    if (key == "train.copy_every" && value != "\"auto\"") every = std::stoll(value);
  }
  return every;
}

}  // namespace lockstep
