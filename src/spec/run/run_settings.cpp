#include "spec/run/run_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>

#include "base/checksum.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr auto kMayDiffer = std::to_array<std::string_view>({
    "run.out",                // one folder may have several paths; checkpoint/shared_folder.h proves that it is one
    "run.threads",            // kernels sum in one order, whatever their threads
    "run.pin",                //
    "run.deadline",           // the shortest counts
    "model.preset",           // the fields that it stands for are compared
    "model.hf",               // the content of its weights is
    "model.from",             // the content of the checkpoint is
    "data.text",              // the content of the data is
    "data.tokens",            //
    "data.example",           //
    "layout.schedule_file",   // its text is
    "run.machine",            // rank 0 reads it
    "memory.offload_folder",  // each rank has a file of its own
});

constexpr std::size_t kMostText = 16 << 20;

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_of(const std::string& toml) {
  std::vector<std::pair<std::string, std::string>> all;
  std::istringstream lines(toml);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[") && line.ends_with("]")) section = line.substr(1, line.size() - 2);
    const auto equals = line.find(" = ");
    if (equals == std::string::npos || line.starts_with("#")) continue;
    all.emplace_back(section + "." + line.substr(0, equals), line.substr(equals + 3));
  }
  return all;
}

bool is_place_of_source(std::string_view setting) {
  return setting.starts_with("data.source.") && (setting.ends_with(".text") || setting.ends_with(".tokens"));
}

bool may_differ_by_rank(std::string_view setting) {
  return is_place_of_source(setting) || std::ranges::find(kMayDiffer, setting) != kMayDiffer.end();
}

std::vector<std::pair<std::string, std::string>> settings_alike(const RunSpec& spec) {
  std::vector<std::pair<std::string, std::string>> all = settings_of(to_toml(spec));
  std::erase_if(all, [](const auto& setting) { return may_differ_by_rank(setting.first); });
  if (!spec.model_hf.empty()) all.emplace_back("model.hf", "(a folder)");
  if (!spec.model_from.empty()) all.emplace_back("model.from", "(a run)");
  if (!spec.layout.schedule_file.empty()) {
    const std::string text = read_text_file(spec.layout.schedule_file, kMostText, ExitCode::usage);
    all.emplace_back("the text of layout.schedule_file",
                     fmt::format("{:016x}", checksum(std::as_bytes(std::span(text)))));
  }
  return all;
}

}  // namespace lockstep
