#include "launch/copy_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/system_failure.h"
#include "launch/copy_channel.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStepPrefix = "step-", kMirrorPrefix = "of-";
constexpr const char* kManifestFile = "manifest.json";

std::optional<std::int64_t> copy_step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  std::int64_t step = 0;
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || copy_step_name(step) != name) return std::nullopt;
  return step;
}

std::vector<fs::path> listed(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  std::ranges::sort(entries);
  return entries;
}

void move(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw EnvironmentError(system_failure(to, "rename", errno));
}

void make(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw EnvironmentError(system_failure(folder, "mkdir", error.value()));
}

}  // namespace

std::string copy_step_name(std::int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::map<std::int64_t, std::set<std::string>> CopyStore::list() const {
  std::map<std::int64_t, std::set<std::string>> steps;
  const auto add = [&](const fs::path& copy) {
    if (const auto step = copy_step_of(copy))
      for (const fs::path& file : listed(copy)) steps[*step].insert(file.filename().string());
  };
  for (const fs::path& entry : listed(folder_)) {
    add(entry);
    if (entry.filename().string().starts_with(kMirrorPrefix))
      for (const fs::path& copy : listed(entry)) add(copy);
  }
  return steps;
}

std::vector<fs::path> CopyStore::places_of(std::int64_t step) const {
  std::vector<fs::path> places{folder_ / copy_step_name(step)};
  for (const fs::path& entry : listed(folder_))
    if (entry.filename().string().starts_with(kMirrorPrefix)) places.push_back(entry / copy_step_name(step));
  return places;
}

std::optional<fs::path> CopyStore::find(std::int64_t step, const std::string& name) const {
  std::error_code ignored;
  for (const fs::path& place : places_of(step))
    if (fs::is_regular_file(place / name, ignored)) return place / name;
  return std::nullopt;
}

std::optional<std::map<std::string, std::int64_t>> CopyStore::files_of(const fs::path& manifest) {
  std::ifstream in(manifest, std::ios::binary);
  const nlohmann::json document = nlohmann::json::parse(in, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  std::map<std::string, std::int64_t> files;
  for (const char* list : {"files", "companions"}) {
    if (!document.contains(list) || !document[list].is_array()) continue;
    for (const nlohmann::json& file : document[list]) {
      if (!file.is_object() || !file.contains("name") || !file["name"].is_string() || !file.contains("bytes") ||
          !file["bytes"].is_number_integer() || !is_copy_file_name(file["name"]))
        return std::nullopt;
      files[file["name"]] = file["bytes"];
    }
  }
  return files;
}

std::optional<CopyStore::Ready> CopyStore::ready() const {
  std::ifstream in(folder_ / kReadyName, std::ios::binary);
  const nlohmann::json said = nlohmann::json::parse(in, nullptr, false);
  if (!said.is_object() || !said.contains("step") || !said["step"].is_number_integer()) return std::nullopt;
  Ready ready{.step = said["step"], .committed = said.value("committed", std::int64_t{0}), .folder = {}, .files = {}};
  ready.folder = folder_ / (".partial-" + copy_step_name(ready.step));
  for (const fs::path& file : listed(ready.folder)) ready.files.push_back(file.filename().string());
  return ready;
}

void CopyStore::write_mirrored(std::int64_t step) const {
  const fs::path beside = folder_ / fmt::format("{}.new", kMirroredName);
  std::ofstream(beside) << step << '\n';
  move(beside, folder_ / kMirroredName);
}

fs::path CopyStore::begin_mirror(int agent, std::int64_t step, std::int64_t committed) const {
  const fs::path of = folder_ / fmt::format("{}{}", kMirrorPrefix, agent);
  const fs::path partial = of / ("." + copy_step_name(step));
  make(of);
  std::vector<fs::path> older = listed(of);
  std::erase(older, of / copy_step_name(committed));
  std::error_code ignored;
  if (older.empty()) make(partial);
  for (std::size_t i = 0; i + 1 < older.size(); ++i) fs::remove_all(older[i], ignored);
  if (!older.empty() && older.back() != partial) move(older.back(), partial);
  return partial;
}

void CopyStore::finish_mirror(int agent, std::int64_t step, const std::set<std::string>& files) const {
  const fs::path of = folder_ / fmt::format("{}{}", kMirrorPrefix, agent);
  const fs::path partial = of / ("." + copy_step_name(step));
  std::error_code ignored;
  for (const fs::path& file : listed(partial))
    if (!files.contains(file.filename().string())) fs::remove(file, ignored);
  move(partial, of / copy_step_name(step));
}

void CopyStore::remove_mirrors() const {
  std::error_code ignored;
  for (const fs::path& entry : listed(folder_))
    if (entry.filename().string().starts_with(kMirrorPrefix)) fs::remove_all(entry, ignored);
}

void CopyStore::finish_file(std::int64_t step, const std::string& name) const {
  make(folder_ / copy_step_name(step));
  move(begin_file(), folder_ / copy_step_name(step) / name);
}

}  // namespace lockstep
