#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors_writer.h"

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
    throw EnvironmentError(fmt::format("{}: opendir failed: {}", folder.string(), error.message()));
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

// Under a name no reader looks at, before the first file of it goes.
void remove_checkpoint(const fs::path& path, const Disk& disk) {
  disk.rename(path, trash_of(path));
  disk.sync_folder(path.parent_path());
  disk.remove_tree(trash_of(path));
}

struct Piece {
  const StateTensor* state;
  std::size_t file;
  std::string entry;
  bool whole;
};

// The pieces of every tensor, in order and proven to cover it, each with its file and its name there.
std::map<std::pair<std::string, std::string>, std::vector<Piece>> cut_into_files(std::span<const StateTensor> tensors,
                                                                                 std::int64_t limit,
                                                                                 std::size_t& files) {
  std::map<std::pair<std::string, std::string>, std::vector<Piece>> all;
  for (const StateTensor& t : tensors) {
    LOCKSTEP_CHECK(
        t.live.device() == Device::cpu && t.live.dims() == 1 && t.live.contiguous() && is_float(t.live.dtype()),
        "{} of '{}' is no flat float tensor on the host", t.part, t.tensor.name);
    if (t.live.elements() > 0)
      all[{t.part, t.tensor.name}].push_back({.state = &t, .file = 0, .entry = "", .whole = false});
  }
  std::int64_t filled = 0;
  files = 1;
  for (auto& [key, pieces] : all) {
    const std::string name = key.first + "/" + key.second;
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.state->begin < b.state->begin; });
    const StateTensor& first = *pieces.front().state;
    std::int64_t next = 0;
    for (Piece& piece : pieces) {
      const StateTensor& t = *piece.state;
      LOCKSTEP_CHECK(t.begin == next && t.tensor.shape == first.tensor.shape && t.live.dtype() == first.live.dtype(),
                     "{}: a slice from {} on where the one from {} on belongs, of one shape and type", name, t.begin,
                     next);
      next += t.live.elements();
      piece.whole = t.live.elements() == t.tensor.elements();
      piece.entry = piece.whole ? name : fmt::format("{}:{}-{}", name, t.begin, next);
      if (filled > 0 && filled + t.live.bytes() > limit) {
        ++files;
        filled = 0;
      }
      filled += t.live.bytes();
      piece.file = files - 1;
    }
    LOCKSTEP_CHECK(next == first.tensor.elements(), "{}: slices cover {} of {} elements", name, next,
                   first.tensor.elements());
  }
  return all;
}

// Everything of a checkpoint, written and synced, into a folder that is there and empty.
void write_contents(const fs::path& into, const Progress& progress, std::span<const StateTensor> tensors,
                    std::int64_t limit, const Disk& disk) {
  Manifest manifest{.progress = progress, .tensors = {}, .files = {}};
  std::size_t files = 0;
  const auto all = cut_into_files(tensors, limit, files);
  const auto file_name = [&](std::size_t i) { return fmt::format("state-{:05}-of-{:05}.safetensors", i, files); };
  std::vector<std::vector<NamedTensor>> inside(files);
  for (const auto& [key, pieces] : all) {
    const StateTensor& first = *pieces.front().state;
    ManifestTensor& tensor = manifest.tensors.emplace_back(ManifestTensor{
        .part = key.first, .name = key.second, .shape = first.tensor.shape, .dtype = first.live.dtype(), .slices = {}});
    for (const Piece& piece : pieces) {
      const Tensor& live = piece.state->live;
      inside[piece.file].push_back(
          {piece.entry, piece.whole ? live.reshape(Shape(std::span(first.tensor.shape))) : live});
      tensor.slices.push_back({.file = file_name(piece.file),
                               .entry = piece.entry,
                               .begin = piece.state->begin,
                               .end = piece.state->begin + live.elements()});
    }
  }
  for (std::size_t i = 0; i < files; ++i) {
    DiskFile file(disk, into / file_name(i));
    write_safetensors(file, inside[i]);
    const WrittenFile written = file.finish();
    manifest.files.push_back({.name = file_name(i), .bytes = written.bytes, .checksum = written.checksum});
  }
  const std::string text = manifest_text(manifest);
  LOCKSTEP_CHECK(text.size() <= kMaxManifestBytes, "a manifest of {} bytes", text.size());
  DiskFile file(disk, into / kManifestName);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finish();
  disk.sync_folder(into);
}

void put_in_place(const fs::path& partial, const fs::path& final, const Disk& disk) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(final, ignored))) {
    disk.rename(partial, final);
  } else if (disk.swap(partial, final)) {
    disk.sync_folder(final.parent_path());
    disk.remove_tree(partial);  // the one of old
  } else {
    disk.rename(final, trash_of(final));
    try {
      disk.rename(partial, final);
    } catch (...) {
      disk.rename(trash_of(final), final);
      throw;
    }
    disk.sync_folder(final.parent_path());
    disk.remove_tree(trash_of(final));
  }
  disk.sync_folder(final.parent_path());
}

// What the disk gives back, not what memory remembers.
void read_back(const fs::path& checkpoint, const Disk& disk) {
  for (const std::string& name : names_in(checkpoint)) disk.drop_cache(checkpoint / name);
  try {
    open_checkpoint(checkpoint);
  } catch (const UserError& error) {
    Provisional damaged(disk, trash_of(checkpoint));
    disk.rename(checkpoint, trash_of(checkpoint));
    throw EnvironmentError(
        fmt::format("{}: what was written does not read back: {}", checkpoint.string(), error.what()));
  }
}

void prune(const CheckpointFolder& folder, std::int64_t saved, const Disk& disk) {
  std::vector<std::int64_t> others = steps_in(folder.path);
  std::erase(others, saved);
  for (std::int64_t left = std::ssize(others), i = 0; left > folder.keep - 1; --left, ++i)
    remove_checkpoint(folder.path / step_folder_name(others[static_cast<std::size_t>(i)]), disk);
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

fs::path save_checkpoint(const CheckpointFolder& folder, const Progress& progress, std::span<const StateTensor> tensors,
                         const Disk& disk) {
  LOCKSTEP_CHECK(folder.keep >= 1 && progress.step >= 0, "keep {}, step {}", folder.keep, progress.step);
  LOCKSTEP_CHECK(progress.run_file.size() <= kMaxRunFileBytes, "a run file of {} bytes", progress.run_file.size());
  const std::string name = step_folder_name(progress.step);
  const fs::path partial = folder.path / (std::string(kPartial) + name), final = folder.path / name;
  disk.make_folders(folder.path);
  remove_leftovers(folder.path, disk);
  {
    Provisional provisional(disk, partial);
    disk.make_folder(partial);
    write_contents(partial, progress, tensors, folder.file_limit, disk);
    put_in_place(partial, final, disk);
    provisional.keep();
  }
  replace_file(disk, folder.path / kLatestName, [&](DiskFile& file) {
    const std::string line = name + "\n";
    file.write(line.data(), static_cast<std::int64_t>(line.size()));
  });
  read_back(final, disk);
  prune(folder, progress.step, disk);
  return final;
}

}  // namespace lockstep
