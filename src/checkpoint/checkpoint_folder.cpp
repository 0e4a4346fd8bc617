#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/system_failure.h"
#include "checkpoint/all_or_none.h"
#include "checkpoint/backup.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/finite.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shared_folder.h"
#include "checkpoint/state_copy.h"
#include "checkpoint/state_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-", kTrash = ".trash-", kStep = "step-";

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw EnvironmentError(system_failure(folder, "opendir", error.value()));
  std::sort(names.begin(), names.end());
  return names;
}

void remove_leftovers(const fs::path& folder, const Disk& disk) {
  for (const std::string& name : names_in(folder)) {
    const bool ours = name.starts_with(std::string(kPartial) + std::string(kStep)) ||
                      name.starts_with(std::string(kTrash) + std::string(kStep)) ||
                      name == std::string(kLatestName) + ".partial";
    if (ours) disk.remove_tree(folder / name);
  }
}

fs::path trash_of(const fs::path& checkpoint) {
  return checkpoint.parent_path() / (std::string(kTrash) + checkpoint.filename().string());
}

// Under a name no reader looks at, before its first file is removed.
void remove_checkpoint(const fs::path& path, const Disk& disk) {
  disk.rename(path, trash_of(path));
  disk.sync_folder(path.parent_path());
  disk.remove_tree(trash_of(path));
}

// What each rank tells the others before anything is written.
struct Opening {
  std::int64_t step;
  std::string token;  // rank 0's, of several; one line
  std::string state;  // state_files.h

  std::string text() const { return fmt::format("{}\n{}\n{}", step, token, state); }
  static Opening parse(const std::string& text) {
    const std::size_t first = text.find('\n'), second = text.find('\n', first + 1);
    return {std::stoll(text.substr(0, first)), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  }
};

std::string files_text(const std::vector<ManifestFile>& files) {
  nlohmann::json list = nlohmann::json::array();
  for (const ManifestFile& file : files) list.push_back({file.name, file.bytes, file.checksum});
  return list.dump();
}

std::vector<ManifestFile> parse_files(std::span<const std::string> of_ranks) {
  std::vector<ManifestFile> files;
  for (const std::string& text : of_ranks)
    for (const nlohmann::json& file : nlohmann::json::parse(text)) files.push_back({file[0], file[1], file[2]});
  return files;
}

std::vector<ManifestFile> write_companions(const fs::path& into, const CheckpointFolder& folder, const Disk& disk) {
  std::vector<ManifestFile> files;
  if (!folder.companions) return files;
  for (const HfCompanion& one : *folder.companions) {
    const std::string name = std::string(kCompanionPrefix) + one.name;
    DiskFile file(disk, into / name);
    file.write(one.bytes.data(), std::ssize(one.bytes));
    const WrittenFile written = file.finish();
    files.push_back({name, written.bytes, written.checksum});
  }
  return files;
}

// The last of a checkpoint's files, when all others are there.
void write_manifest(const fs::path& into, const Manifest& manifest, const Disk& disk) {
  const std::string text = manifest_text(manifest);
  LOCKSTEP_CHECK(text.size() <= kMaxManifestBytes, "a manifest of {} bytes", text.size());
  DiskFile file(disk, into / kManifestName);
  file.write(text.data(), std::ssize(text));
  file.finish();
  disk.sync_folder(into);
}

// Returns where the checkpoint of that step that was there before is now, if there was one.
std::optional<fs::path> put_in_place(const fs::path& partial, const fs::path& final, const Disk& disk) {
  std::error_code ignored;
  std::optional<fs::path> before;
  if (!fs::exists(fs::symlink_status(final, ignored))) {
    disk.rename(partial, final);
  } else if (disk.swap(partial, final)) {
    before = partial;
  } else {
    disk.rename(final, trash_of(final));
    try {
      disk.rename(partial, final);
    } catch (...) {
      disk.rename(trash_of(final), final);
      throw;
    }
    before = trash_of(final);
  }
  disk.sync_folder(final.parent_path());
  return before;
}

// The old checkpoint gets its name back, and the new one is removed.
void put_back(const fs::path& before, const fs::path& final, const Disk& disk) noexcept {
  try {
    if (disk.swap(before, final)) return disk.remove_tree(before);
    const fs::path bad = fs::path(trash_of(final)) += "-bad";
    disk.rename(final, bad);
    disk.rename(before, final);
    disk.sync_folder(final.parent_path());
    disk.remove_tree(bad);
  } catch (...) {  // the failure that led here is the one to tell; the next save cleans up
  }
}

void write_latest(const fs::path& folder, const std::string& text, const Disk& disk) {
  replace_file(disk, folder / kLatestName, [&](DiskFile& file) { file.write(text.data(), std::ssize(text)); });
}

std::string text_of_latest(const fs::path& folder) {
  std::string text;
  std::getline(std::ifstream(folder / kLatestName), text, '\0');
  return text;
}

// What the disk gives back, not what memory remembers. One that is not what was written goes, and `latest` is as it
// was, unless there is an old one of that step to take its place.
void read_back(const fs::path& checkpoint, const std::string& latest, bool replaces, const Disk& disk) {
  const fs::path folder = checkpoint.parent_path();
  for (const std::string& name : names_in(checkpoint)) disk.drop_cache(checkpoint / name);
  try {
    open_checkpoint(checkpoint);
  } catch (const UserError& error) {
    if (!replaces) {
      Provisional damaged(disk, trash_of(checkpoint));
      disk.rename(checkpoint, trash_of(checkpoint));
      latest.empty() ? disk.remove_file(folder / kLatestName) : write_latest(folder, latest, disk);
    }
    throw EnvironmentError(
        fmt::format("{}: what was written does not read back: {}; check the disk, or name a run folder on another",
                    checkpoint.string(), error.what()));
  }
}

// The renamed folder becomes a checkpoint for good: `latest` names it, and it is proven. `before` is the old one of
// that step, if there was one: it has its name again when this fails, and goes when it does not.
void prove(const fs::path& final, const std::optional<fs::path>& before, const Disk& disk) {
  const fs::path folder = final.parent_path();
  const std::string latest = text_of_latest(folder);
  try {
    write_latest(folder, final.filename().string() + "\n", disk);
    read_back(final, latest, before.has_value(), disk);
  } catch (...) {
    if (before) put_back(*before, final, disk);
    throw;
  }
  if (before) disk.remove_tree(*before);
}

}  // namespace

std::string step_folder_name(std::int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::optional<std::int64_t> step_of_folder_name(std::string_view name) {
  std::int64_t step = 0;
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  // Another spelling of the number would be another folder of one step.
  if (error != std::errc() || step < 0 || step_folder_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (const auto step = step_of_folder_name(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

// The newest whole ones stay, `keep` with the one just saved; damaged ones are neither counted nor removed. State that
// was checked is pushed out by `keep` others that were, and by no state that nobody has looked at.
void prune_checkpoints(const fs::path& folder, std::int64_t keep, std::int64_t saved, WholeCheckpoints& whole,
                       const Disk& disk) {
  std::vector<std::int64_t> others = steps_in(folder);
  std::erase(others, saved);
  std::reverse(others.begin(), others.end());
  std::int64_t kept = 1, checked = whole.is_checked(folder / step_folder_name(saved)) ? 1 : 0;
  for (const std::int64_t step : others) {
    const fs::path path = folder / step_folder_name(step);
    if (!whole.is_whole(path)) continue;
    const bool is_checked = whole.is_checked(path);
    if ((is_checked ? checked : kept) < keep) {
      ++kept;
      checked += is_checked ? 1 : 0;
      continue;
    }
    remove_checkpoint(path, disk);
    whole.forget(path);
  }
}

fs::path save_checkpoint(const CheckpointFolder& folder, const Progress& progress, std::span<const StateTensor> pieces,
                         const Disk& disk, Communicator* ranks) {
  if (folder.copies) return save_copy(folder, progress, pieces, disk, ranks);
  const auto rank = static_cast<std::size_t>(ranks ? ranks->rank() : 0);
  const bool first = rank == 0, several = ranks && ranks->size() > 1;
  const std::string name = step_folder_name(progress.step);
  const fs::path partial = folder.path / (std::string(kPartial) + name), final = folder.path / name;
  const fs::path token = partial / kTokenName;
  std::optional<StateFiles> files;
  std::optional<Provisional> provisional;  // rank 0's; it goes when all ranks are done with it

  std::vector<std::string> states;
  std::string token_text;
  for (const std::string& text : all_or_none(ranks, [&] {
         LOCKSTEP_CHECK(folder.keep >= 1 && progress.step >= 0, "keep {}, step {}", folder.keep, progress.step);
         LOCKSTEP_CHECK(progress.run_file.size() <= kMaxRunFileBytes, "a run file of {} bytes",
                        progress.run_file.size());
         if (folder.finite_weights) require_finite_weights(pieces, folder.stream);
         files.emplace(pieces, folder.file_limit, folder.stream);
         Opening opening{.step = progress.step, .token = "", .state = files->described()};
         if (first) {
           disk.make_folders(folder.path);
           remove_leftovers(folder.path, disk);
           provisional.emplace(disk, partial);
           disk.make_folder(partial);
           if (several) opening.token = leave_token(token, disk);
         }
         return opening.text();
       })) {
    const Opening opening = Opening::parse(text);
    LOCKSTEP_CHECK(opening.step == progress.step, "rank {} saves step {}, rank {} step {}", rank, progress.step,
                   states.size(), opening.step);
    if (states.empty()) token_text = opening.token;
    states.push_back(opening.state);
  }
  WholeState whole = join_state(states);  // refused by all ranks alike

  const std::vector<std::string> written = all_or_none(ranks, [&] {
    if (!first) find_token(token, token_text, folder.seen_within);
    const std::vector<ManifestFile> mine = files->write(partial, whole.begins[rank], whole.begins.back(), disk);
    if (!first && !mine.empty()) disk.sync_folder(partial);  // rank 0's host may not be the one that can
    return files_text(mine);
  });

  all_or_none(ranks, [&]() -> std::string {
    if (!first) return "";
    if (several) disk.remove_file(token);
    write_manifest(partial,
                   {.progress = progress,
                    .tensors = std::move(whole.tensors),
                    .files = parse_files(written),
                    .companions = write_companions(partial, folder, disk)},
                   disk);
    const std::optional<fs::path> before = put_in_place(partial, final, disk);
    provisional->keep();
    prove(final, before, disk);
    WholeCheckpoints unknown;
    WholeCheckpoints& whole_ones = folder.whole ? *folder.whole : unknown;
    whole_ones.add(final);
    prune_checkpoints(folder.path, folder.keep, progress.step, whole_ones, disk);
    if (folder.backup) folder.backup->backup(final, folder.keep, disk);
    return "";
  });
  return final;
}

}  // namespace lockstep
