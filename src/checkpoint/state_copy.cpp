#include "checkpoint/state_copy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/integers.h"
#include "base/system_failure.h"
#include "checkpoint/all_or_none.h"
#include "checkpoint/finite.h"
#include "checkpoint/manifest.h"
#include "checkpoint/state_files.h"
#include "comm/control/socket.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartialCopy = ".partial-";
constexpr std::int64_t kGenerations = 2;

fs::path partial_of(const fs::path& folder, std::int64_t step) {
  return folder / (std::string(kPartialCopy) + step_folder_name(step));
}

std::vector<fs::path> entries_in(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error) throw EnvironmentError(system_failure(folder, "opendir", error.value()));
  std::ranges::sort(entries);
  return entries;
}

// Copies and what killed ranks have left of them; the agent's own files are no such thing.
bool is_of_copies(const fs::path& entry) {
  const std::string name = entry.filename().string();
  return step_of_folder_name(name) || name.starts_with(std::string(kPartialCopy) + "step-");
}

// Where the folder is: two ranks have the same text when they write into the same one.
std::string identity_of(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) throw EnvironmentError(system_failure(folder, "stat", errno));
  return fmt::format("{} {} {}", control::host_name(), status.st_dev, status.st_ino);
}

// The folder that the new copy is written into: the older generation's, whose files are written over, or a new one.
// What else is there is of no use: what killed ranks have left, and copies that not all hosts have.
void make_room(const fs::path& folder, const fs::path& partial, std::int64_t committed, const Disk& disk) {
  std::optional<fs::path> older;
  for (const fs::path& entry : entries_in(folder)) {
    if (!is_of_copies(entry) || (committed > 0 && entry == folder / step_folder_name(committed))) continue;
    if (older) disk.remove_tree(*older);
    older = entry;
  }
  if (!older) return disk.make_folder(partial);
  if (*older == partial) return;
  disk.rename(*older, partial);
}

// Files of an earlier copy that nobody has written over: of another layout, or brought from another host.
void remove_others(const fs::path& partial, const std::set<std::string>& names, const Disk& disk) {
  for (const fs::path& entry : entries_in(partial))
    if (!names.contains(entry.filename().string())) disk.remove_file(entry);
}

// What each rank tells the others before it writes: rank 0 the resolved run file, and all their pieces.
struct CopyOpening {
  std::string run_file, state;

  std::string text() const { return run_file + '\0' + state; }
  static CopyOpening parse(const std::string& text) {
    const std::size_t end = text.find('\0');
    return {text.substr(0, end), text.substr(end + 1)};
  }
};

// And after it has written: its files, and rank 0 those of the Hugging Face folder.
struct CopyFiles {
  std::vector<ManifestFile> files, companions;

  std::string text() const { return nlohmann::json{list_of(files), list_of(companions)}.dump(); }
  static CopyFiles parse(const std::string& text) {
    const nlohmann::json both = nlohmann::json::parse(text);
    CopyFiles written;
    for (const nlohmann::json& file : both[0]) written.files.push_back({file[0], file[1], file[2]});
    for (const nlohmann::json& file : both[1]) written.companions.push_back({file[0], file[1], file[2]});
    return written;
  }

 private:
  static nlohmann::json list_of(const std::vector<ManifestFile>& files) {
    nlohmann::json list = nlohmann::json::array();
    for (const ManifestFile& file : files) list.push_back({file.name, file.bytes, file.checksum});
    return list;
  }
};

WrittenFile write_whole(const fs::path& file, std::string_view bytes, const Disk& disk) {
  DiskFile open(disk, file);
  open.write(bytes.data(), std::ssize(bytes));
  return open.finish();
}

void wait_until_mirrored(const CheckpointFolder& folder, std::int64_t step, const Disk& disk) {
  using Clock = std::chrono::steady_clock;
  const fs::path beside = folder.path / (std::string(kReadyFile) + ".new");
  std::error_code none;
  fs::remove(folder.path / kMirroredFile, none);  // of the same step, before the run was resumed
  write_whole(beside, nlohmann::json{{"step", step}, {"committed", folder.copies->committed}}.dump(), disk);
  disk.rename(beside, folder.path / kReadyFile);
  const auto until = Clock::now() + std::chrono::duration<double>(kMirrorSeconds);
  while (Clock::now() < until) {
    std::int64_t mirrored = -1;
    if (std::ifstream(folder.path / kMirroredFile) >> mirrored; mirrored == step) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

CopyGenerations begin_copies(const fs::path& folder, std::int64_t committed, const Disk& disk, Communicator* ranks) {
  const std::vector<std::string> places = all_or_none(ranks, [&] { return identity_of(folder); });
  const auto mine = places.begin() + (ranks ? ranks->rank() : 0);
  CopyGenerations generations{.ranks_here = static_cast<int>(std::ranges::count(places, *mine)),
                              .mirrored = false,
                              .first_here = std::find(places.begin(), mine, *mine) == mine,
                              .committed = committed,
                              .here = {}};
  for (const std::string& place : places) generations.here.push_back(place == *mine);
  for (const std::string& one : all_or_none(ranks, [&]() -> std::string {
         std::error_code ignored;
         return fs::exists(folder / kExchangeFile, ignored) ? "mirrored" : "";
       }))
    generations.mirrored |= !one.empty();
  all_or_none(ranks, [&]() -> std::string {
    if (!generations.first_here) return "";
    for (const fs::path& entry : entries_in(folder))
      if (is_of_copies(entry) && (committed == 0 || entry != folder / step_folder_name(committed)))
        disk.remove_tree(entry);
    return "";
  });
  return generations;
}

fs::path save_copy(const CheckpointFolder& folder, const Progress& progress, std::span<const StateTensor> pieces,
                   const Disk& disk, Communicator* ranks) {
  const auto rank = static_cast<std::size_t>(ranks ? ranks->rank() : 0);
  const bool first_here = folder.copies->first_here;
  const fs::path partial = partial_of(folder.path, progress.step),
                 final = folder.path / step_folder_name(progress.step);
  std::optional<StateFiles> files;
  std::optional<Provisional> provisional;  // goes when all ranks are done with it

  std::vector<std::string> states;
  Manifest manifest{.progress = progress, .tensors = {}, .files = {}, .companions = {}};
  for (const std::string& text : all_or_none(ranks, [&] {
         LOCKSTEP_CHECK(progress.step > folder.copies->committed, "a copy of step {} after one of step {}",
                        progress.step, folder.copies->committed);
         if (folder.finite_weights) require_finite_weights(pieces, folder.stream);
         files.emplace(pieces, folder.file_limit, folder.stream);
         if (first_here) {
           provisional.emplace(disk, partial);
           make_room(folder.path, partial, folder.copies->committed, disk);
         }
         return CopyOpening{.run_file = rank == 0 ? progress.run_file : "", .state = files->described()}.text();
       })) {
    CopyOpening opening = CopyOpening::parse(text);
    if (states.empty()) manifest.progress.run_file = std::move(opening.run_file);
    states.push_back(std::move(opening.state));
  }
  WholeState whole = join_state(states);  // refused by all ranks alike
  manifest.tensors = std::move(whole.tensors);

  CopyFiles all;
  std::set<std::string> names{kManifestName};  // of what is here
  std::size_t of = 0;
  for (const std::string& text : all_or_none(ranks, [&] {
         CopyFiles mine{.files = files->write(partial, whole.begins[rank], whole.begins.back(), disk),
                        .companions = {}};
         if (rank == 0 && folder.companions)
           for (const HfCompanion& one : *folder.companions) {
             const std::string kept = std::string(kCompanionPrefix) + one.name;
             const WrittenFile written = write_whole(partial / kept, one.bytes, disk);
             mine.companions.push_back({kept, written.bytes, written.checksum});
           }
         return mine.text();
       })) {
    const CopyFiles its = CopyFiles::parse(text);
    for (const auto& [from, into] : {std::pair(&its.files, &all.files), std::pair(&its.companions, &all.companions)}) {
      into->insert(into->end(), from->begin(), from->end());
      for (const ManifestFile& file : *from)
        if (folder.copies->here[of]) names.insert(file.name);
    }
    ++of;
  }

  const auto complete = [&] {
    manifest.files = std::move(all.files);
    manifest.companions = std::move(all.companions);
    remove_others(partial, names, disk);
    const std::string text = manifest_text(manifest);
    LOCKSTEP_CHECK(text.size() <= kMaxManifestBytes, "a manifest of {} bytes", text.size());
    write_whole(partial / kManifestName, text, disk);
  };
  if (folder.copies->mirrored)
    all_or_none(ranks, [&]() -> std::string {
      if (!first_here) return "";
      complete();
      wait_until_mirrored(folder, progress.step, disk);
      return "";
    });
  all_or_none(ranks, [&]() -> std::string {
    if (!first_here) return "";
    if (!folder.copies->mirrored) complete();
    disk.rename(partial, final);
    provisional->keep();
    return "";
  });
  folder.copies->committed = progress.step;
  return final;
}

std::vector<std::int64_t> complete_copies(const fs::path& folder) {
  std::vector<std::int64_t> steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t step) {
    const fs::path copy = folder / step_folder_name(step);
    try {
      std::string text;
      std::getline(std::ifstream(copy / kManifestName, std::ios::binary), text, '\0');
      const Manifest manifest = parse_manifest(text, copy.string());
      const auto is_there = [&](const ManifestFile& file) {
        std::error_code error;
        return static_cast<std::int64_t>(fs::file_size(copy / file.name, error)) == file.bytes && !error;
      };
      return !std::ranges::all_of(manifest.files, is_there) || !std::ranges::all_of(manifest.companions, is_there);
    } catch (const UserError&) {
      return true;
    }
  });
  return steps;
}

void remove_copies(const fs::path& folder) noexcept {
  try {
    for (const fs::path& entry : entries_in(folder))
      if (is_of_copies(entry)) Disk::in_memory().remove_tree(entry);
  } catch (...) {
  }
}

CopyBytes copy_bytes(std::span<const StateTensor> pieces) {
  std::int64_t bytes = 0;
  for (const StateTensor& piece : pieces) bytes += piece.live.bytes();
  return {.folder = kGenerations * bytes, .process = bytes};
}

}  // namespace lockstep
